package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// permissions is the template that users get. It is read as it is shipped.
const permissions = "../../scripts/nats-permissions.conf"

var (
	templatePassword = regexp.MustCompile(`\$(LEDGER_[A-Z_]+_PASSWORD)`)
	templateUser     = regexp.MustCompile(`user: ([a-z-]+),`)
)

// A walled is a NATS server with the template's users.
type walled struct {
	t     testing.TB
	url   string
	users []string
}

// startWalled starts a server with the template. Where users have passwords in
// the environment, the test has them before the template's text.
func startWalled(t testing.TB) *walled {
	t.Helper()
	template, err := os.ReadFile(permissions)
	require.NoError(t, err)
	var text strings.Builder
	for _, m := range templatePassword.FindAllSubmatch(template, -1) {
		fmt.Fprintf(&text, "%s: %q\n", m[1], "secret-"+string(m[1]))
	}
	text.Write(template)
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	v := &walled{t: t, url: testenv.StartNATS(t, natsserver.Options{ConfigFile: file}).URL()}
	for _, m := range templateUser.FindAllSubmatch(template, -1) {
		v.users = append(v.users, string(m[1]))
	}
	return v
}

// as is the server's URL for a user.
func (v *walled) as(user string) string {
	password := "secret-LEDGER_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
	return strings.Replace(v.url, "nats://", "nats://"+user+":"+password+"@", 1)
}

// connect connects as a user.
func (v *walled) connect(user string, options ...nats.Option) *nats.Conn {
	v.t.Helper()
	return testenv.Connect(v.t, v.as(user), append(options, nats.CustomInboxPrefix("_INBOX."+user))...)
}

// flags make the program speak as a user.
func (v *walled) flags(user string) []string {
	return []string{"--nats", v.as(user), "--nats-inbox", "_INBOX." + user}
}

// asUser makes a process of a world speak as a user.
func (v *walled) asUser(user string) serveOption {
	return func(p *process) { p.args = append(p.args, v.flags(user)...) }
}

// sentinel is a subject that nobody may use.
const sentinel = "no.such.subject"

// refused lets a user try something with each of the subjects and returns those
// that the server refuses.
func (v *walled) refused(user string, subjects []string, try func(*nats.Conn, string) error) map[string]bool {
	v.t.Helper()
	violations := make(chan string, len(subjects)+1)
	nc := v.connect(user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err.Error() }))
	defer nc.Close()
	for _, subject := range append(slices.Clone(subjects), sentinel) {
		require.NoError(v.t, try(nc, subject))
	}
	require.NoError(v.t, nc.Flush())
	found := map[string]bool{}
	for text := range violations { // in the order of the attempts
		_, quoted, _ := strings.Cut(text, `"`)
		subject, _, _ := strings.Cut(quoted, `"`)
		if subject == sentinel {
			break
		}
		require.Contains(v.t, subjects, subject, text)
		found[subject] = true
	}
	return found
}

// requireOnly insists that only those whom the table names may do something.
func (v *walled) requireOnly(allowed map[string]string, try func(*nats.Conn, string) error) {
	v.t.Helper()
	subjects := slices.Sorted(maps.Keys(allowed))
	found := map[string]string{}
	for _, user := range v.users {
		refused := v.refused(user, subjects, try)
		for _, subject := range subjects {
			if !refused[subject] {
				found[subject] = strings.TrimSpace(found[subject] + " " + user)
			}
		}
	}
	for _, subject := range subjects {
		require.Equal(v.t, allowed[subject], found[subject], "who may use %s", subject)
	}
}

// TestPermissionsHold: each user of the template tries what it may do and what
// the others may.
func TestPermissionsHold(t *testing.T) {
	t.Parallel()
	v := startWalled(t)
	require.Equal(t, []string{"admin", "projector", "api", "reconciler", "worker-primary", "worker-fallback", "shop", "operator"}, v.users)

	publish := map[string]string{
		"ledger.rules.set":                 "admin projector",
		"ledger.kind.define":               "operator",
		"ledger.provider.define":           "api operator", // pausing one over HTTP
		"ledger.provider.verified":         "operator",
		"ledger.job.request":               "api operator",
		"ledger.job.request.shop":          "shop",
		"ledger.job.request.other":         "",
		"ledger.job.cancel":                "api operator",
		"ledger.attempt.request":           "api operator",
		"ledger.attempt.start.primary":     "projector",
		"ledger.attempt.claim.primary":     "reconciler worker-primary",
		"ledger.attempt.claim.fallback":    "reconciler worker-fallback",
		"ledger.attempt.complete.primary":  "reconciler worker-primary",
		"ledger.attempt.complete.fallback": "reconciler worker-fallback",
		"ledger.attempt.resolve":           "api reconciler operator",
		"ledger.clock.due":                 "projector",

		"ledger.outcome.id":          "projector",
		"ledger.stop.primary":        "projector",
		"ledger.api.job.submit":      "shop operator",
		"ledger.api.job.get":         "shop operator",
		"ledger.api.job.cancel":      "shop operator",
		"ledger.api.attempt.start":   "shop operator",
		"ledger.api.attempt.resolve": "operator",
		"_INBOX.shop.x":              "projector api",
		"_INBOX.projector.x":         "projector api",
		"_R_.x":                      "api",
		"else":                       "",

		"$JS.API.STREAM.CREATE.LEDGER":     "admin",
		"$JS.API.STREAM.UPDATE.LEDGER":     "admin",
		"$JS.API.STREAM.DELETE.LEDGER":     "admin",
		"$JS.API.STREAM.PURGE.LEDGER":      "admin",
		"$JS.API.STREAM.MSG.DELETE.LEDGER": "admin",
		"$JS.API.STREAM.MSG.GET.LEDGER":    "admin",
		"$JS.API.STREAM.SNAPSHOT.LEDGER":   "admin",
		"$JS.API.STREAM.INFO.LEDGER":       "admin projector api reconciler worker-primary worker-fallback shop operator",
		"$JS.API.STREAM.INFO.OTHER":        "admin",
		"$JS.API.DIRECT.GET.LEDGER":        "admin projector api reconciler operator",

		"$JS.API.CONSUMER.CREATE.LEDGER.x":                                           "admin projector operator",
		"$JS.API.CONSUMER.CREATE.LEDGER.worker-primary.ledger.attempt.start.primary": "admin worker-primary",
		"$JS.API.CONSUMER.CREATE.LEDGER.worker-primary.ledger.job.request":           "admin",
		"$JS.API.CONSUMER.DURABLE.CREATE.LEDGER.worker-primary":                      "admin",
		"$JS.API.CONSUMER.MSG.NEXT.LEDGER.worker-primary":                            "admin projector worker-primary operator",
		"$JS.API.CONSUMER.DELETE.LEDGER.worker-primary":                              "admin projector operator",
		"$JS.ACK.LEDGER.worker-primary.1.1.1.1.0":                                    "worker-primary",
		"$JS.ACK.LEDGER.worker-fallback.1.1.1.1.0":                                   "worker-fallback",
		"$KV.LEDGER_workers.w1":                                                      "reconciler worker-primary worker-fallback",
		"$JS.API.STREAM.INFO.KV_LEDGER_workers":                                      "admin reconciler worker-primary worker-fallback operator",
		"$JS.API.CONSUMER.CREATE.KV_LEDGER_workers.x.$KV.LEDGER_workers.>":           "admin reconciler",
		"$JS.API.STREAM.DELETE.KV_LEDGER_workers":                                    "admin",
	}
	for _, subject := range ledger.StoredSubjects("ledger") {
		for _, example := range []string{".shop", ".primary"} {
			_, covered := publish[strings.Replace(subject, ".*", example, 1)]
			if covered {
				subject = ""
				break
			}
		}
		require.Empty(t, subject, "a stored subject that the template and this table do not know")
	}
	v.requireOnly(publish, func(nc *nats.Conn, subject string) error { return nc.Publish(subject, nil) })

	subscribe := map[string]string{
		">": "", "ledger.>": "", "ledger.job.>": "", "ledger.attempt.start.primary": "", "_INBOX.>": "", "$JS.>": "", "$KV.>": "",
		"_INBOX.projector.>": "projector", "_INBOX.shop.>": "shop", "_INBOX.worker-primary.x": "worker-primary",
		"ledger.outcome.*":       "api shop operator",
		"ledger.stop.primary":    "reconciler worker-primary",
		"ledger.stop.fallback":   "reconciler worker-fallback",
		"ledger.api.job.submit":  "api",
		"$SRV.INFO.jobledger":    "api",
		"ledger.attempt.resolve": "",
	}
	v.requireOnly(subscribe, func(nc *nats.Conn, subject string) error {
		_, err := nc.SubscribeSync(subject)
		return err
	})
}
