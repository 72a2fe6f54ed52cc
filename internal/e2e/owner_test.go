package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokenLine lets a token speak for an owner.
func tokenLine(token, owner, role string) string {
	return fmt.Sprintf("- {sha256: %x, owner: %s, role: %s}\n", sha256.Sum256([]byte(token)), owner, role)
}

func TestOwnersSeeTheirOwnJobs(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{
		yaml:   oneKind("", main),
		tokens: tokenLine("of-acme", "acme", "producer") + tokenLine("of-bolt", "bolt", "producer") + tokenLine("of-root", "root", "operator"),
	})
	w.attach(main)
	p := w.serve("api,projector,worker")
	w.apply()
	withToken := func(token, owner string) *client {
		c := p.client("")
		c.token, c.owner = token, owner
		return c
	}
	acme, bolt, root := withToken("of-acme", "acme"), withToken("of-bolt", "bolt"), withToken("of-root", "root")

	one := acme.create("k1", pay(`"400"`))
	two := bolt.create("k1", pay(`"answer"`))
	require.NotEqual(t, one, two)
	acme.finished(one, "failed")
	bolt.finished(two, "succeeded")

	absent := bolt.do("GET", jobPath(bolt.jobID("nothing")), "").is(http.StatusNotFound, "not-found")
	for _, a := range []answer{
		bolt.do("GET", jobPath(one), ""),
		bolt.do("GET", jobPath(one)+"/attempts/1", ""),
		bolt.press(one, "b", ""),
		bolt.cancel(one),
	} {
		a.is(http.StatusNotFound, "not-found")
		for member := range a.body {
			require.Contains(t, absent.body, member, "%s: %s", a.what, a.raw)
		}
		require.NotContains(t, string(a.raw), "acme")
	}
	bolt.resolve(one, 1, `{"as":"failed","reason":"mine?"}`).is(http.StatusForbidden, "forbidden")
	acme.resolve(one, 1, `{"as":"failed","reason":"mine!"}`).is(http.StatusForbidden, "forbidden")
	acme.press(one, "b", `{"force":true}`).is(http.StatusForbidden, "forbidden")

	for path, n := range map[string]int{"/v1/jobs": 1, "/v1/jobs?owner=acme": 0, "/v1/jobs?owner=bolt": 1, "/v1/jobs?key=k1": 1} {
		require.Len(t, bolt.do("GET", path, "").is(http.StatusOK).body["jobs"], n, path)
	}
	require.Len(t, bolt.do("GET", "/v1/attempts", "").is(http.StatusOK).body["attempts"], 1)
	require.Len(t, root.do("GET", "/v1/jobs", "").is(http.StatusOK).body["jobs"], 2)
	root.job(one)
	bolt.as("acme").submit("k1", pay(`"answer"`)).is(http.StatusForbidden, "forbidden")
	require.Equal(t, one, root.as("acme").submit("k1", pay(`"400"`)).replayed().text("id"))

	for _, token := range []string{"", "of-nobody"} {
		for _, owner := range []string{"", "acme"} {
			c := withToken(token, owner)
			a := c.submit("k2", pay(`"answer"`)).is(http.StatusUnauthorized, "unauthorized")
			require.NotEmpty(t, a.header.Get("WWW-Authenticate"))
			c.do("GET", jobPath(one), "").is(http.StatusUnauthorized, "unauthorized")
		}
	}
	require.Equal(t, 2, w.number("SELECT count(*) FROM ledger.jobs"))
	w.verify()
}

// refusesNobody: a missing owner is 401, and no two owners share a job.
func (w *world) refusesNobody(c *client) {
	w.t.Helper()
	before := w.requests()
	a := c.as("").submit("k", pay(`"answer"`)).is(http.StatusUnauthorized, "unauthorized")
	require.NotEmpty(w.t, a.header.Get("WWW-Authenticate"))
	c.do("POST", "/v1/jobs", pay(`"answer"`), "Idempotency-Key", "k", "Ledger-Owner", "").is(http.StatusUnauthorized, "unauthorized")
	require.Equal(w.t, before, w.requests())
	ids := map[string]bool{}
	for _, owner := range []string{"acme", "Acme", "a", "acme:k", "*", ">", "a.b"} {
		ids[c.as(owner).create("k", pay(`"answer"`))] = true
	}
	require.Len(w.t, ids, 7)
}
