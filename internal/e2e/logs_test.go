package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// TestLogsHoldNoSecrets: at debug level, jobs of every end and requests of every
// fault leave the ids of jobs and attempts in the logs, and nothing of payloads,
// tokens, providers' credentials or the database's password.
func TestLogsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	web := newLeaky(t)
	w := newWorld(t, setup{
		yaml:   leakyYAML(web.URL),
		tokens: tokenLine("hush-token-acme", "acme", "producer") + tokenLine("hush-token-root", "root", "operator"),
	})
	u, err := url.Parse(w.database)
	require.NoError(t, err)
	password, _ := u.User.Password()
	require.NotEmpty(t, password, "a database with a password is needed to see that it is in no log")
	private := []string{password, "hush-"} // all else that is private here starts so
	run := withEnv("JOBLEDGER_LOG_LEVEL=debug", "TEST_CREDENTIAL=Bearer hush-credential", "PROVIDER_URL_SECRET=hush-variable")
	api, projector, worker := w.serve("api", run), w.serve("projector", run), w.serve("worker", run)
	w.apply()
	acme, root := api.client(""), api.client("")
	acme.token, root.token = "hush-token-acme", "hush-token-root"
	acme.owner, root.owner = "", ""

	ended := map[string]string{}
	for kind, state := range map[string]string{"works": "succeeded", "fails": "failed", "breaks": "failed", "hangs": "unknown"} {
		a := acme.mustVerdict("POST", "/v1/jobs", fmt.Sprintf(`{"kind":%q,"input":{"card":"hush-input"}}`, kind), "Idempotency-Key", "hush-key-"+kind).created()
		ended[a.text("id")] = state
	}
	for id, state := range ended {
		w.eventually(1, "SELECT count(*) FROM ledger.jobs WHERE id = $1 AND state = $2", id, state)
		acme.do("GET", jobPath(id)+"?hush-query=1", "").is(http.StatusBadRequest)
		if state == "unknown" {
			root.do("POST", jobPath(id)+"/attempts/1/resolve", `{"as":"succeeded","result":"hush-resolved","reason":"hush-reason"}`).is(http.StatusOK)
		}
	}
	// What is refused, and what cannot be read.
	acme.do("POST", "/v1/jobs", `{"kind":"works","input":"hush-conflict"}`, "Idempotency-Key", "hush-key-works").is(http.StatusConflict)
	acme.do("POST", "/v1/jobs", `{"kind":"works","input":"hush-cut`, "Idempotency-Key", "hush-other").is(http.StatusBadRequest)
	acme.do("POST", "/v1/jobs", `{"kind":"hush-kind","input":1}`, "Idempotency-Key", "hush-third").is(http.StatusBadRequest)
	stranger := *acme
	stranger.token = "hush-token-wrong"
	stranger.do("GET", "/v1/jobs", "").is(http.StatusUnauthorized)
	for _, entry := range []string{`{"v":1,"owner":"acme","key":"hush-plain","kind":"works","input":"hush-`, `hush-nonsense`} {
		_, err := w.js.Publish(w.ctx(), w.prefix+".job.request", []byte(entry))
		require.NoError(t, err)
	}
	for provider, body := range map[string]string{"attempt.claim.web": `{"hush-claim":1}`, "attempt.start.web": `{"v":1,"input":"hush-start"`} {
		_, err := w.js.Publish(w.ctx(), w.prefix+"."+provider, []byte(body))
		require.NoError(t, err)
	}
	require.NoError(t, w.js.Conn().Publish(w.prefix+".stop.web", []byte(`{"job":"hush-stop"`)))
	w.caughtUp()
	testenv.Eventually(t, patience, func() (bool, string) {
		return strings.Contains(worker.log.String(), "a start that cannot be read"), worker.log.String()
	})
	w.verify()

	logs := map[string]string{}
	for _, p := range []*process{api, projector, worker} {
		p.stop()
		logs[p.roles] = p.log.String()
	}
	for roles, text := range logs {
		for line := range strings.Lines(text) {
			for _, secret := range private {
				if strings.Contains(line, secret) {
					t.Errorf("serve --roles %s logs %q:\n%s", roles, secret, line)
				}
			}
		}
	}
	for id := range ended {
		require.Regexp(t, `job=`+id+` attempt=1 `, logs["worker"], "the worker's lines name job and attempt")
		require.Regexp(t, `route=.* job=`+id, logs["api"], "the API's lines name the job")
	}
	require.Regexp(t, regexp.MustCompile(`level=DEBUG .*request_id=\S+`), logs["api"])
}

// newLeaky is a provider that puts secrets into all that it answers.
func newLeaky(t testing.TB) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/works":
			_, _ = fmt.Fprint(w, `{"iban":"hush-result"}`)
		case "/fails":
			w.Header().Set("Location", "http://hush-location")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"error":"hush-problem"}`)
		default:
			_, _ = fmt.Fprint(w, `{"iban":"hush-half`) // no JSON
			panic(http.ErrAbortHandler)
		}
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return server
}

func leakyYAML(base string) string {
	return fmt.Sprintf(`
kinds:
  works:  {providers: [web]}
  fails:  {providers: [web-fails]}
  hangs:  {providers: [web-breaks]}
  breaks: {providers: [tool]}
providers:
  web:        {type: http, url: "%[1]s/works", headers_env: {Authorization: TEST_CREDENTIAL}}
  web-fails:  {type: http, url: "%[1]s/fails", headers_env: {Authorization: TEST_CREDENTIAL}}
  web-breaks: {type: http, url: "%[1]s/breaks", headers_env: {Authorization: TEST_CREDENTIAL}}
  tool:       {type: exec, command: [sh, -c, "cat >&2; echo hush-stderr >&2; echo '\"hush-stdout\"'; exit 3"], env_pass: [PROVIDER_URL_SECRET]}
`, base)
}
