package httpapi

import (
	"net/http"
	"strings"

	"jobledger/ledger"
)

// OwnerHeader names the owner whom a request is for. Operators may name any.
const OwnerHeader = "Ledger-Owner"

// A Principal is who makes a request.
type Principal struct {
	Owner    string // for whom; never ""
	Operator bool   // may touch every owner's jobs, resolve, and force
	Actor    string // who says it, for the entries
}

// An Authenticator finds out who makes a request, or returns a *Problem.
type Authenticator func(*http.Request) (Principal, error)

// DevAuth believes the header Ledger-Owner and gives everybody an operator's
// rights. It is for a server on the loopback interface.
func DevAuth() Authenticator {
	return func(r *http.Request) (Principal, error) {
		owner, err := ownerOf(r)
		if err == nil && owner == "" {
			err = unauthorized("", "the header %s is missing; it says whose job this is", OwnerHeader)
		}
		return Principal{Owner: owner, Operator: true, Actor: "dev:" + owner}, err
	}
}

// Roles of tokens.
const (
	RoleProducer = "producer"
	RoleOperator = "operator"
)

// TokenAuth takes bearer tokens. lookup returns the owner and the role of a
// token; it must take the same time for every token that it does not know. An
// operator may name another owner in the header Ledger-Owner.
func TokenAuth(lookup func(token string) (owner, role string, ok bool)) Authenticator {
	return func(r *http.Request) (Principal, error) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return Principal{}, unauthorized("", "the request has no bearer token")
		}
		owner, role, ok := lookup(strings.TrimSpace(token))
		if !ok || owner == "" || role != RoleProducer && role != RoleOperator {
			return Principal{}, unauthorized(`, error="invalid_token"`, "the bearer token is not known")
		}
		p := Principal{Owner: owner, Operator: role == RoleOperator, Actor: role + ":" + owner}
		named, err := ownerOf(r)
		switch {
		case err != nil:
			return Principal{}, err
		case named == "" || named == owner:
		case !p.Operator:
			return Principal{}, problem(http.StatusForbidden, "forbidden", "a producer may act for its own owner only; leave %s out", OwnerHeader)
		default:
			p.Owner = named
		}
		return p, nil
	}
}

// ownerOf reads the header Ledger-Owner; "" if there is none.
func ownerOf(r *http.Request) (string, error) {
	values := r.Header.Values(OwnerHeader)
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", badRequest("bad-owner", "the header %s stands there %d times", OwnerHeader, len(values))
	case values[0] == "":
		return "", nil
	}
	if err := ledger.CheckIdent("the owner", values[0]); err != nil {
		return "", badRequest("bad-owner", "%v", err)
	}
	return values[0], nil
}

func unauthorized(params, format string, args ...any) *Problem {
	return problem(http.StatusUnauthorized, "unauthorized", format, args...).
		header("WWW-Authenticate", `Bearer realm="jobledger"`+params)
}
