package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Percentiles of N durations.
type Percentiles struct {
	N                  int
	P50, P90, P99, Max time.Duration
}

func percentiles(d []time.Duration) Percentiles {
	if len(d) == 0 {
		return Percentiles{}
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1))] }
	return Percentiles{N: len(d), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: d[len(d)-1]}
}

func (p Percentiles) String() string {
	r := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	return fmt.Sprintf("p50 %-10s p90 %-10s p99 %-10s max %s", r(p.P50), r(p.P90), r(p.P99), r(p.Max))
}

// A Report is what a run measured.
type Report struct {
	Jobs, Producers, Shards, InputBytes int
	SyncAlways                          bool

	Seconds       float64 // from the first submit until all jobs are in the tables
	SubmitSeconds float64 // until the last decision on a request
	Idle          Percentiles
	IdleClaim     Percentiles // from the request's timestamp to the claim's
	IdleLife      Percentiles // from the request's timestamp to the completion's
	Submit        Percentiles
	Claim         Percentiles
	Life          Percentiles
	Entries       uint64 // of the stream, in the load phase
	StreamBytes   uint64
	Batches       int64 // transactions of the projector that folded something
	PeakBytes     uint64
	// Differences is what verify found.
	Differences     int
	FirstDifference string
}

// Rate returns job lives a second.
func (r *Report) Rate() float64 { return float64(r.Jobs) / r.Seconds }

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	sync := "default (every 2 min)"
	if r.SyncAlways {
		sync = "always"
	}
	verify := "clean"
	if r.Differences > 0 {
		verify = fmt.Sprintf("%d differences; the first: %s", r.Differences, r.FirstDifference)
	}
	jobs := float64(r.Jobs)
	var b strings.Builder
	for _, line := range [][2]string{
		{"jobs", fmt.Sprintf("%d from %d producers, %d bytes of input, %d shards, NATS sync_interval %s", r.Jobs, r.Producers, r.InputBytes, r.Shards, sync)},
		{"lives", fmt.Sprintf("%.0f a second (%.2f s)", r.Rate(), r.Seconds)},
		{"submits", fmt.Sprintf("%.0f a second", jobs/r.SubmitSeconds)},
		{"one producer, submit", r.Idle.String()},
		{"one producer, start to claim", r.IdleClaim.String()},
		{"one producer, whole life", r.IdleLife.String()},
		{"under load, submit", r.Submit.String()},
		{"under load, start to claim", r.Claim.String()},
		{"under load, whole life", r.Life.String()},
		{"stream", fmt.Sprintf("%.2f entries and %.0f bytes a job", float64(r.Entries)/jobs, float64(r.StreamBytes)/jobs)},
		{"projector", fmt.Sprintf("%d batches, %.0f entries each", r.Batches, float64(r.Entries)/float64(max(r.Batches, 1)))},
		{"memory", fmt.Sprintf("%.0f MiB at most (this process: NATS server, producers, projector, worker)", float64(r.PeakBytes)/(1<<20))},
		{"verify", verify},
	} {
		fmt.Fprintf(&b, "%-30s %s\n", line[0], line[1])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// peakMemory returns the most memory that this process has had resident, in
// bytes; 0 where the system does not tell.
func peakMemory() uint64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if kb, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}
