package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// printJSON prints a value as one line of JSON.
func (c *cli) printJSON(v any) error {
	enc := json.NewEncoder(c.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printBody prints JSON that came from the API as it is, on one line.
func (c *cli) printBody(body []byte) error {
	_, err := fmt.Fprintf(c.stdout, "%s\n", bytes.TrimSpace(body))
	return err
}

// printTable prints rows under a header, in columns; nil: without a header.
func (c *cli) printTable(header []string, rows [][]string) error {
	return writeTable(c.stdout, header, rows)
}

func writeTable(to io.Writer, header []string, rows [][]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if header != nil {
		fmt.Fprintln(w, strings.Join(header, "\t"))
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// maxCell bounds what a table's cell shows; JSON output shows all.
const maxCell = 120

// oneLine makes text fit a cell.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	if runes := []rune(s); len(runes) > maxCell {
		return string(runes[:maxCell-1]) + "…"
	}
	return s
}

func timeCell(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func textCell(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
