package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"jobledger/internal/config"
	"jobledger/projector"
	"jobledger/publisher/httpapi"
	"jobledger/schema"
	"jobledger/workers"
	"jobledger/workers/contract"
)

func (c *cli) serveCommand() *cobra.Command {
	var roles []string
	var listen, spool, metrics string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run roles of the ledger against real servers",
		Long: "Run roles of the ledger against real servers. It creates nothing: see init, migrate and kind apply.\n" +
			"The API listens beyond the loopback interface only with api.tokens_file.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error { return c.serve(ctx, roles, listen, spool, metrics) }),
	}
	cmd.Flags().StringSliceVar(&roles, "roles", allRoles, "what this process does: some of "+strings.Join(allRoles, ", "))
	cmd.Flags().StringVar(&listen, "http", "", "`ADDR` of the API, host:port (default: the configuration's api.listen)")
	cmd.Flags().StringVar(&metrics, "metrics", "", metricsUsage)
	cmd.Flags().StringVar(&spool, "spool", "", "the workers' `DIR` for completions that cannot be appended (default: the configuration's workers.spool)")
	return cmd
}

func (c *cli) serve(ctx context.Context, roles []string, listen, spool, metrics string) error {
	roles, err := parseRoles(roles)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	t, cfg, err := c.target()
	if err != nil {
		return err
	}
	if err := t.needDatabase(); err != nil {
		return err
	}
	if listen != "" {
		cfg.API.Listen = listen
	}
	var auth httpapi.Authenticator // without the API's role there is nobody to ask
	if slices.Contains(roles, roleAPI) {
		if auth, err = c.serveAuth(cfg.API); err != nil {
			return err
		}
	}
	meta := projector.Meta{Stream: cfg.NATS.Stream, Prefix: cfg.NATS.SubjectPrefix}
	if err := checkTables(ctx, t.database, meta); err != nil {
		return err
	}
	var contracts map[string]*contract.Contract // a projector needs none
	if len(roles) > 1 || roles[0] != roleProjector {
		if contracts, err = cfg.Contracts(); err != nil {
			return &exitError{code: exitUsage, err: err}
		}
	}
	a := &app{
		log: c.log, nats: t.nats, database: t.database, ledger: meta, roles: roles,
		providers: cfg.Providers, contracts: contracts, spoolDir: cmp.Or(spool, cfg.Workers.Spool), listen: cfg.API.Listen, auth: auth, grace: workers.DefaultGrace,
		metricsAt: metricsAt(metrics, cfg.API.Metrics),
	}
	boundGarbage() // no server is in this process, so what lives is little
	if err := a.open(ctx); err != nil {
		return err
	}
	return errors.Join(a.run(ctx), a.close())
}

// serveAuth says who may call the API.
func (c *cli) serveAuth(api config.API) (httpapi.Authenticator, error) {
	if api.TokensFile == "" {
		if err := requireLoopback(api.Listen); err != nil {
			return nil, fmt.Errorf("%w, or set api.tokens_file", err)
		}
		c.log.Warn("there is no api.tokens_file: whoever reaches the API on this machine may act for every owner")
		return httpapi.DevAuth(), nil
	}
	tokens, err := config.LoadTokens(api.TokensFile)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return httpapi.TokenAuth(tokens.Lookup), nil
}

// requireLoopback refuses an address that other machines can reach.
func requireLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return exitWith(exitUsage, "the API's address is %q; expected host:port", listen)
	}
	addr, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && addr.IsLoopback() {
		return nil
	}
	return exitWith(exitUsage, "the API would listen on %s, which other machines can reach, without tokens; listen on 127.0.0.1", listen)
}

// checkTables insists that the schema is this binary's and that the tables are
// the ledger's.
func checkTables(ctx context.Context, databaseURL string, meta projector.Meta) error {
	if err := schema.Check(ctx, databaseURL); err != nil {
		return err
	}
	pool, err := projector.NewPool(ctx, databaseURL, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	found, ok, err := projector.ReadMeta(ctx, pool)
	switch {
	case err != nil:
		return err
	case !ok:
		return exitWith(exitRefused, "the tables belong to no ledger yet; run jobledger init")
	case found.Stream != meta.Stream || found.Prefix != meta.Prefix:
		return otherLedger(found, meta)
	}
	return nil
}
