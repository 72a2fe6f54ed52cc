package ledger

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/states.md is made from the transition tables, so that the picture cannot
// drift from what the fold does.
const statesDoc = "../docs/states.md"

var writeStates = flag.Bool("write-states", false, "write "+statesDoc+" from the transition tables")

func TestStatesDoc(t *testing.T) {
	t.Parallel()
	want := statesText()
	if *writeStates {
		if err := os.WriteFile(statesDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(statesDoc)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the transition tables say; run go test ./ledger -run TestStatesDoc -write-states", statesDoc)
	}
}

func statesText() []byte {
	var b bytes.Buffer
	b.WriteString(`<!-- Made by: go test ./ledger -run TestStatesDoc -write-states. Do not edit. -->

# States

The tables in ` + "`ledger/transitions.go`" + ` are the only places where states change,
and these diagrams are made from them. What decides between the events is told
by the stories in ` + "`ledger/testdata/fold`" + `.

## Attempts

An attempt is one try at a job on one provider. A timeout is *unknown*, which is
not an end: the late word of its worker or a person's resolution settles it.

`)
	diagram(&b, attemptMoves, func(m attemptMove) move { return move{string(m.from), string(m.event), string(m.to)} })
	b.WriteString(`
## Jobs

A job is one intent. *Succeeded* and *cancelled* are for ever; *failed* ends all
automatic work, and only a person opens it again. A waiting job has a reason:
` + "`scheduled`, `backoff`, `held` or `failover-unverified`" + `.

`)
	diagram(&b, jobMoves, func(m jobMove) move { return move{string(m.from), string(m.event), string(m.to)} })
	return b.Bytes()
}

// move is one line of either table.
type move struct{ from, event, to string }

// diagram writes a table as a Mermaid diagram: one arrow for each pair of
// states, in the order of the table, and an end mark for states that nothing
// leaves.
func diagram[T any](b *bytes.Buffer, table []T, read func(T) move) {
	type arrow struct{ from, to string }
	var arrows []arrow
	events := map[arrow][]string{}
	leaves := map[string]bool{}
	var states []string
	for _, row := range table {
		m := read(row)
		a := arrow{m.from, m.to}
		if events[a] == nil {
			arrows = append(arrows, a)
		}
		events[a] = append(events[a], m.event)
		leaves[m.from] = leaves[m.from] || m.from != m.to
		if !slices.Contains(states, m.to) {
			states = append(states, m.to)
		}
	}
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, a := range arrows {
		from := a.from
		if from == "" {
			from = "[*]"
		}
		fmt.Fprintf(b, "    %s --> %s: %s\n", from, a.to, strings.ReplaceAll(strings.Join(events[a], " / "), ":", ""))
	}
	for _, s := range states {
		if !leaves[s] {
			fmt.Fprintf(b, "    %s --> [*]\n", s)
		}
	}
	b.WriteString("```\n")
}

// TestTablesAreSound checks what no table of transitions may say.
func TestTablesAreSound(t *testing.T) {
	t.Parallel()
	if len(attemptIndex) != len(attemptMoves) || len(jobIndex) != len(jobMoves) {
		t.Error("a state takes an event in two ways")
	}
	for _, m := range attemptMoves {
		if m.from != "" && !m.from.InFlight() {
			t.Errorf("an attempt leaves the end %s by %q", m.from, m.event)
		}
		if m.to == AttemptUnknown && m.event != attemptAmbiguous && m.event != attemptOverdue && m.event != attemptForsaken {
			t.Errorf("an attempt becomes unknown by %q", m.event)
		}
		if m.event == attemptOverdue && m.to != AttemptUnknown {
			t.Errorf("a deadline makes an attempt %s", m.to)
		}
	}
	for _, m := range jobMoves {
		if m.from.Final() {
			t.Errorf("a job leaves %s by %q", m.from, m.event)
		}
		if m.from == JobFailed && m.event != jobReopened && m.event != jobCancelled {
			t.Errorf("a failed job moves by %q, which is no person's doing", m.event)
		}
	}
}
