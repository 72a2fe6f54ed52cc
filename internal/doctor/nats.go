package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/stream"
	"jobledger/ledger"
	"jobledger/publisher"
)

const (
	// minAPILevel is the level of the JetStream API that knows every setting of
	// the ledger's stream.
	minAPILevel = 4
	// warnFillPercent is when a stream's fill is worth a person's attention; at
	// publisher.RequestFillPercent new requests are refused.
	warnFillPercent = 80

	monitorTimeout = 5 * time.Second
	maxMonitorBody = 4 << 20
)

func connection(_ context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return problem("%v", p.ConnErr)
	}
	if most := p.Conn.MaxPayload(); most < ledger.MaxPayloadBytes {
		return problem("%s takes messages of at most %d bytes; the projector needs max_payload %d", p.Conn.ConnectedUrlRedacted(), most, ledger.MaxPayloadBytes)
	}
	return ok("%s", p.Conn.ConnectedUrlRedacted())
}

func serverVersion(ctx context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return noConnection()
	}
	js, err := jetstream.New(p.Conn)
	if err != nil {
		return problem("%v", err)
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return problem("JetStream does not answer: %v", err)
	}
	return judgeVersion(p.Conn.ConnectedServerVersion(), account.API.Level)
}

func judgeVersion(version string, level int) (Status, string) {
	if level < minAPILevel {
		return problem("%s has the JetStream API level %d; the ledger's stream needs %d: use a newer nats-server", version, level, minAPILevel)
	}
	return ok("%s", version)
}

// varz is what is read of a server's /varz.
type varz struct {
	ServerName string `json:"server_name"`
	JetStream  struct {
		Config struct {
			SyncInterval time.Duration `json:"sync_interval"`
			SyncAlways   bool          `json:"sync_always"`
			MaxStorage   int64         `json:"max_storage"`
		} `json:"config"`
		Stats struct {
			Storage int64 `json:"storage"`
		} `json:"stats"`
	} `json:"jetstream"`
}

var errNoMonitor = errors.New("nats.monitor is not configured")

// monitor asks the monitoring endpoint.
func (p *Patient) monitor(ctx context.Context) (v varz, err error) {
	if p.Monitor == "" {
		return v, errNoMonitor
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(p.Monitor, "/")+"/varz", nil)
	if err != nil {
		return v, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return v, fmt.Errorf("%s answers %s", req.URL.Redacted(), resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMonitorBody)).Decode(&v); err != nil {
		return v, fmt.Errorf("%s: %w", req.URL.Redacted(), err)
	}
	return v, nil
}

func noMonitor(err error) (Status, string) {
	if errors.Is(err, errNoMonitor) {
		return unchecked("%v", err)
	}
	return problem("the monitoring endpoint (nats.monitor) does not answer: %v", err)
}

// syncInterval: an acknowledgement means "on disk" only if the server syncs each
// write.
func syncInterval(ctx context.Context, p *Patient) (Status, string) {
	v, err := p.monitor(ctx)
	if err != nil {
		return noMonitor(err)
	}
	if !v.JetStream.Config.SyncAlways {
		return problem("%s syncs its disk every %s; an acknowledged entry can be lost with the power until then: set jetstream.sync_interval to always", v.ServerName, v.JetStream.Config.SyncInterval)
	}
	return ok("%s syncs each write", v.ServerName)
}

func serverStorage(ctx context.Context, p *Patient) (Status, string) {
	v, err := p.monitor(ctx)
	if err != nil {
		return noMonitor(err)
	}
	return judgeFill("JetStream on "+v.ServerName, v.JetStream.Stats.Storage, v.JetStream.Config.MaxStorage,
		"when it is full nothing can be appended at all: raise jetstream.max_file_store")
}

func judgeFill(what string, bytes, limit int64, remedy string) (Status, string) {
	if limit <= 0 {
		return ok("%s holds %d bytes and has no limit", what, bytes)
	}
	percent := int64(float64(bytes) / float64(limit) * 100)
	if percent >= warnFillPercent {
		return problem("%s holds %d of at most %d bytes (%d %%); %s", what, bytes, limit, percent, remedy)
	}
	return ok("%s holds %d of at most %d bytes (%d %%)", what, bytes, limit, percent)
}

// streamInfo asks for the stream.
func (p *Patient) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	js, err := jetstream.New(p.Conn)
	if err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, p.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("there is no stream %s; jobledger init makes it", p.Stream)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the stream %s: %w", p.Stream, err)
	}
	return s.CachedInfo(), nil
}

func streamSettings(ctx context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return noConnection()
	}
	info, err := p.streamInfo(ctx)
	if err != nil {
		return problem("%v", err)
	}
	if differences := stream.Check(info, p.Prefix); len(differences) > 0 {
		texts := make([]string, len(differences))
		for i, d := range differences {
			texts[i] = d.String()
		}
		return problem("the stream %s is not as a ledger needs it: %s", p.Stream, strings.Join(texts, "; "))
	}
	return ok("%s is as a ledger needs it, on %d servers", p.Stream, info.Config.Replicas)
}

func streamFill(ctx context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return noConnection()
	}
	info, err := p.streamInfo(ctx)
	if err != nil {
		return unchecked("the stream cannot be looked at")
	}
	remedy := fmt.Sprintf("from %d %% on the API refuses new requests, and plain publishing goes on until nothing fits: raise max_bytes (nats stream edit %s --max-bytes N)",
		publisher.RequestFillPercent, p.Stream)
	return judgeFill(p.Stream, int64(info.State.Bytes), info.Config.MaxBytes, remedy)
}

func natsClock(ctx context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return noConnection()
	}
	before := time.Now()
	info, err := p.streamInfo(ctx)
	if err != nil {
		return unchecked("the stream cannot be looked at")
	}
	trip := time.Since(before)
	return p.judgeClock("the NATS server", info.TimeStamp.Sub(before.Add(trip/2)), trip)
}

// judgeClock compares a clock that is ahead of this machine's by skew, known to
// half of trip.
func (p *Patient) judgeClock(whose string, skew, trip time.Duration) (Status, string) {
	skew = skew.Round(time.Millisecond)
	if certain := skew.Abs() - trip/2; certain > p.MaxSkew {
		return problem("the clock of %s is %s ahead of this machine's; at most %s are sound: deadlines and run_at go by the servers' clocks, so synchronise them", whose, skew, p.MaxSkew)
	}
	return ok("%s ahead of this machine's, give or take %s", skew, (trip / 2).Round(time.Millisecond))
}
