package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"jobledger/projector"
	"jobledger/schema"
)

const (
	// minPostgres is the first version of PostgreSQL that has what the SQL needs.
	minPostgres = 150000
	// catchUpPoll is how often the checkpoints are looked at.
	catchUpPoll = 100 * time.Millisecond
)

func (p *Patient) noDatabase() (Status, string) {
	return unchecked("no database is configured (database.url)")
}

func databaseServer(ctx context.Context, p *Patient) (Status, string) {
	if p.DatabaseURL == "" {
		return p.noDatabase()
	}
	s, err := schema.Inspect(ctx, p.DatabaseURL)
	if err != nil {
		return problem("%v", err)
	}
	return judgeDatabase(s)
}

func judgeDatabase(s schema.Server) (Status, string) {
	switch {
	case !s.Cockroach && s.Number < minPostgres:
		return problem("%s; PostgreSQL 15 or newer is needed", s.Version)
	case s.Encoding != "UTF8":
		return problem("%s with the encoding %s; owners, keys and documents are UTF-8: create the database with ENCODING 'UTF8'", s.Version, s.Encoding)
	}
	return ok("%s", s.Version)
}

// databaseOrder: text that is compared by a language's rules sorts otherwise than
// the ledger does, and may take different keys for the same.
func databaseOrder(ctx context.Context, p *Patient) (Status, string) {
	if p.DatabaseURL == "" {
		return p.noDatabase()
	}
	s, err := schema.Inspect(ctx, p.DatabaseURL)
	if err != nil {
		return unchecked("the database cannot be asked")
	}
	if !s.ByteOrder {
		return problem("text is compared by a language's rules; create the database with the C collation (CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C')")
	}
	return ok("text is compared byte by byte")
}

func databaseClock(ctx context.Context, p *Patient) (Status, string) {
	if p.DatabaseURL == "" {
		return p.noDatabase()
	}
	s, err := schema.Inspect(ctx, p.DatabaseURL)
	if err != nil {
		return unchecked("the database cannot be asked")
	}
	return p.judgeClock("the database", s.Skew, s.RoundTrip)
}

func schemaVersion(ctx context.Context, p *Patient) (Status, string) {
	if p.DatabaseURL == "" {
		return p.noDatabase()
	}
	err := schema.Check(ctx, p.DatabaseURL)
	var other *schema.VersionError
	switch {
	case errors.As(err, &other):
		return problem("%v", err)
	case err != nil:
		return unchecked("the database cannot be asked")
	}
	return ok("version %d", schema.Target())
}

func tables(_ context.Context, p *Patient) (Status, string) {
	switch {
	case p.Tables != nil:
		return ok("they are those of %s", p.Stream)
	case p.DatabaseURL == "":
		return p.noDatabase()
	}
	return problem("%v", p.TablesErr)
}

// projectorBehind: the tables must reach what is in the stream now.
func projectorBehind(ctx context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return noConnection()
	}
	if p.Tables == nil {
		return noTables()
	}
	info, err := p.streamInfo(ctx)
	if err != nil {
		return unchecked("the stream cannot be looked at")
	}
	end := info.State.LastSeq
	waiting, cancel := context.WithTimeout(ctx, p.CatchUp)
	defer cancel()
	tick := time.NewTicker(catchUpPoll)
	defer tick.Stop()
	for first := uint64(math.MaxUint64); ; {
		points, err := p.Tables.Checkpoints(ctx)
		if err != nil {
			return problem("the checkpoints cannot be read: %v", err)
		}
		at := slices.Min(append(points, end))
		first = min(first, at)
		if at == end {
			return ok("the tables have reached entry %d, the stream's last", end)
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
			return behind(end, first, at, p.CatchUp)
		}
	}
}

func behind(end, first, at uint64, waited time.Duration) (Status, string) {
	if at == first {
		return problem("the tables stand still at entry %d, %d before the stream's end: is a projector running, and what does its log say?", at, end-at)
	}
	return problem("the tables are %d entries behind the stream's end and did %d in %s; the API answers 503 read-model-behind meanwhile", end-at, at-first, waited)
}

// mostUnknownGroups bounds the groups of unknown attempts that are named.
const mostUnknownGroups = 5

// unknownAttempts: each needs somebody who finds out the truth. They are those
// that the metrics count.
func unknownAttempts(ctx context.Context, p *Patient) (Status, string) {
	if p.Tables == nil {
		return noTables()
	}
	groups, err := p.Tables.Unknown(ctx)
	if err != nil {
		return problem("unknown attempts cannot be read: %v", err)
	}
	if len(groups) == 0 {
		return ok("none")
	}
	slices.SortStableFunc(groups, func(a, b projector.UnknownGroup) int { return a.Since.Compare(b.Since) })
	list := listUnknown(groups)
	if time.Since(groups[0].Since) > p.UnknownAge {
		return problem("%s: find out at the provider what became of each and say so (jobledger attempt list --state unknown, attempt resolve)", list)
	}
	return ok("%s", list)
}

// listUnknown tells of groups, the one with the oldest attempt first.
func listUnknown(groups []projector.UnknownGroup) string {
	var all int64
	var named []string
	for i, g := range groups {
		all += g.Attempts
		if i < mostUnknownGroups {
			named = append(named, fmt.Sprintf("%d of kind %s on provider %s, the oldest for %s", g.Attempts, g.Kind, g.Provider, time.Since(g.Since).Round(time.Second)))
		}
	}
	if n := len(groups) - mostUnknownGroups; n > 0 {
		named = append(named, fmt.Sprintf("and %d more of kinds and providers", n))
	}
	return fmt.Sprintf("%d: %s", all, strings.Join(named, "; "))
}
