package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/config"
	"jobledger/ledger"
	"jobledger/workers/contract"
	"jobledger/workers/proof"
)

const (
	defaultRuns       = 3
	defaultExpiry     = 30 * 24 * time.Hour
	verifyConcurrency = 4
	// maxFromJobs bounds the past jobs whose inputs are asked again, and
	// jobsPage how many of them are in memory with their results.
	maxFromJobs = 1000
	jobsPage    = 50
	// questionBytes bounds the inputs of a verification.
	questionBytes = 256 << 20
)

type verifyOptions struct {
	provider, kind string
	runs           int
	fromJobs       int
	expires        time.Duration
	concurrency    int
	allowEffects   bool
}

func (c *cli) providerVerifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use: "verify PROVIDER --kind KIND", Short: "Prove that a provider keeps a kind's contract, so that jobs may fail over to it",
		Long: "Prove that a provider keeps a kind's contract, so that jobs may fail over to it. The cases of the contract,\n" +
			"and with --from-jobs the inputs of jobs that have succeeded, are sent to the provider as a worker would send\n" +
			"them, several times each; every result has to keep the contract. Then what came out is recorded: passed, until\n" +
			"the proof expires, or failed. No job is touched. The calls carry idempotency keys of their own, verify-<uuid>.\n\n" +
			"THE CALLS ARE REAL. For a kind with effects: external they charge, send or write what any job would, and\n" +
			"--allow-effects says that this is wanted.\n\n" +
			"The contract and the provider's definition must be those of the ledger (jobledger kind apply). Exit status: 0\n" +
			"passed, 1 failed, 7 the provider could not be asked (nothing is recorded then).",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.completeOne(c.providerNames),
		RunE: ran(func(ctx context.Context, args []string) error {
			o.provider = args[0]
			return c.providerVerify(ctx, o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.kind, "kind", "", "the kind whose contract it is (required)")
	f.IntVar(&o.runs, "runs", defaultRuns, "how often each input is sent")
	f.IntVar(&o.fromJobs, "from-jobs", 0, fmt.Sprintf("send the inputs of so many of the latest succeeded jobs as well, up to %d", maxFromJobs))
	f.DurationVar(&o.expires, "expires", defaultExpiry, "how long a passed verification lets jobs fail over")
	f.IntVar(&o.concurrency, "concurrency", 0, fmt.Sprintf("calls that are under way at once (default: %d, or the provider's if that is less)", verifyConcurrency))
	f.BoolVar(&o.allowEffects, "allow-effects", false, "make real calls for a kind whose effects are external")
	must(cmd.MarkFlagRequired("kind"))
	return cmd
}

func (o *verifyOptions) check() error {
	switch {
	case o.fromJobs < 0 || o.fromJobs > maxFromJobs:
		return exitWith(exitUsage, "--from-jobs is %d; expected 0 to %d", o.fromJobs, maxFromJobs)
	case o.expires <= 0 || o.expires > ledger.MaxDelay:
		return exitWith(exitUsage, "--expires is %s; expected more than 0, up to %s", o.expires, ledger.MaxDelay)
	case o.runs < 1:
		return exitWith(exitUsage, "--runs is %d; expected at least 1", o.runs)
	case o.concurrency < 0 || o.concurrency > proof.MaxConcurrency:
		return exitWith(exitUsage, "--concurrency is %d; expected 1 to %d", o.concurrency, proof.MaxConcurrency)
	}
	return nil
}

// A trial is a provider and a kind, as the configuration has them and as the
// ledger has them, which is the same.
type trial struct {
	provider config.Provider
	kind     ledger.Kind
	contract *contract.Contract
	digest   ledger.Digest // of the provider's definition
}

func (c *cli) providerVerify(ctx context.Context, o verifyOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if c.api != "" {
		return exitWith(exitUsage, "provider verify calls the provider itself and reads past jobs, so it needs NATS and the database, and not --api; run it where a worker for the provider could run")
	}
	d, err := c.direct(ctx)
	if err != nil {
		return err
	}
	defer d.closeLogged(c.log)
	t, err := findTrial(ctx, d, &o)
	if err != nil {
		return err
	}
	questions, skipped, err := t.questions(ctx, d, o.fromJobs)
	if err != nil {
		return err
	}
	if skipped > 0 {
		c.log.Warn("inputs of past jobs are left out: they break the contract as it is now", "jobs", skipped)
	}
	report, err := c.try(ctx, t, &o, questions)
	if err != nil {
		return err
	}
	verified := verified{Provider: o.provider, Kind: o.kind, Contract: t.kind.Contract, ProviderDigest: t.digest.String(), Report: report}
	if report.Verdict != proof.NotProved {
		if err := c.record(ctx, d, &verified, o.expires); err != nil {
			return errors.Join(c.printVerified(&verified), err)
		}
	}
	if err := c.printVerified(&verified); err != nil {
		return err
	}
	switch report.Verdict {
	case proof.Passed:
		return nil
	case proof.Failed:
		return exitStatus(exitFailed)
	}
	return exitWith(exitUnreachable, "provider %s could not be asked (%d of %d calls); nothing is recorded, and what was proved before still counts", o.provider, report.Unasked, report.Calls)
}

// findTrial insists that the configuration and the ledger agree about what is to
// be proved.
func findTrial(ctx context.Context, d *direct, o *verifyOptions) (*trial, error) {
	p, ok := d.cfg.Providers[o.provider]
	if !ok {
		return nil, exitWith(exitNotFound, "the configuration has no provider %s; it says how to call one", o.provider)
	}
	configured, ok := d.cfg.Kinds[o.kind]
	switch {
	case !ok:
		return nil, exitWith(exitNotFound, "the configuration has no kind %s; it says where the contract is", o.kind)
	case configured.Contract == "":
		return nil, exitWith(exitRefused, "kind %s has no contract, so there is nothing to prove; docs/contracts.md says how to write one", o.kind)
	case !slices.Contains(configured.Providers, o.provider):
		return nil, exitWith(exitRefused, "kind %s does not name the provider %s", o.kind, o.provider)
	}
	file, err := config.LoadContract(configured.Contract)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	t := &trial{provider: p, contract: file}
	if err := t.compare(ctx, d, o); err != nil {
		return nil, err
	}
	if t.kind.Effects == ledger.EffectsExternal && !o.allowEffects {
		return nil, exitWith(exitRefused, "kind %s has effects: external: each call of a verification does for real what a job does (charges, sends, writes); say --allow-effects if that is wanted, best with cases made for it", o.kind)
	}
	return t, nil
}

const applyFirst = "; run jobledger kind apply first: a proof is of what the ledger has"

// compare takes the kind and the provider from the ledger.
func (t *trial) compare(ctx context.Context, d *direct, o *verifyOptions) error {
	kind, err := d.queries.Kind(ctx, o.kind)
	if err != nil {
		return err
	}
	switch {
	case kind == nil:
		return exitWith(exitRefused, "the ledger has no kind %s"+applyFirst, o.kind)
	case kind.Contract != t.contract.Digest():
		return exitWith(exitRefused, "kind %s has the contract %s in the ledger, and %s by the file"+applyFirst, o.kind, cmp.Or(kind.Contract, "none"), t.contract.Digest())
	}
	t.kind = *kind
	meaning, err := providerMeaning(t.provider)
	if err != nil {
		return err
	}
	if t.digest, err = ledger.ProviderDigest(t.provider.Type(), meaning); err != nil {
		return err
	}
	rows, err := d.queries.Providers(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(rows, func(r *ledger.ProviderRow) bool { return r.Name == o.provider })
	switch {
	case at < 0:
		return exitWith(exitRefused, "the ledger has no provider %s"+applyFirst, o.provider)
	case rows[at].Digest != t.digest:
		return exitWith(exitRefused, "provider %s is defined otherwise in the ledger than in the configuration"+applyFirst, o.provider)
	}
	return nil
}

// questions are the contract's cases and the inputs of the latest jobs that have
// succeeded, each input once.
func (t *trial) questions(ctx context.Context, d *direct, fromJobs int) (list []proof.Question, skipped int, err error) {
	list = proof.Cases(t.contract)
	seen, bytes := map[string]bool{}, 0
	f := ledger.JobFilter{State: ledger.JobSucceeded, Kind: t.kind.Name, Limit: jobsPage}
	for found := 0; found < fromJobs; {
		jobs, err := d.queries.Jobs(ctx, f)
		if err != nil {
			return nil, 0, err
		}
		for _, j := range jobs {
			f.After = ledger.Cursor{At: j.CreatedAt, Job: j.ID}
			if found == fromJobs {
				break
			}
			found++
			switch {
			case seen[string(j.Input)]:
				continue
			case len(t.contract.CheckInput(j.Input)) > 0:
				skipped++
				continue
			}
			seen[string(j.Input)] = true
			if bytes += len(j.Input); bytes > questionBytes {
				return nil, 0, exitWith(exitRefused, "the inputs of %d past jobs have more than %d MiB; take fewer with --from-jobs", found, questionBytes>>20)
			}
			list = append(list, proof.Question{Name: j.ID.String(), Input: j.Input, Case: -1})
		}
		if len(jobs) < f.Limit {
			break
		}
	}
	return list, skipped, nil
}

// try makes the calls.
func (c *cli) try(ctx context.Context, t *trial, o *verifyOptions, questions []proof.Question) (*proof.Report, error) {
	impl, _, err := implementation(t.provider, map[string]*contract.Contract{o.kind: t.contract})
	if err != nil {
		return nil, exitWith(exitUsage, "provider %s: %w", o.provider, err)
	}
	if closer, ok := impl.(interface{ Close() }); ok {
		defer closer.Close()
	}
	m := newMeter(c.stderr, "calls", int64(len(questions)*o.runs))
	defer m.close()
	report, err := proof.Run(ctx, proof.Options{
		Provider: impl, Contract: t.contract, Kind: o.kind, Questions: questions, Runs: o.runs,
		Concurrency: cmp.Or(o.concurrency, min(verifyConcurrency, t.provider.Concurrency)),
		Timeout:     time.Duration(t.kind.AttemptTimeoutMS) * time.Millisecond,
		Counter:     promptCounter(t.provider, impl, t.contract),
		Done:        func() { m.add(1) },
	})
	if err != nil && ctx.Err() == nil {
		return nil, exitWith(exitUsage, "%w", err)
	}
	return report, err
}

// record appends what came out.
func (c *cli) record(ctx context.Context, d *direct, v *verified, expires time.Duration) error {
	at := time.Now().Add(expires).Truncate(time.Second).UTC()
	answer, err := decide(ctx, d.client, (&ledger.Verification{
		Provider: v.Provider, Kind: v.Kind, Contract: v.Contract, ProviderDigest: v.ProviderDigest,
		Passed: v.Report.Verdict == proof.Passed, Report: v.Report.JSON(), ExpiresAt: at, Actor: actor(),
	}).Message())
	if err != nil {
		return fmt.Errorf("record the verification: %w", err)
	}
	if answer.Decision.Rejects() {
		return exitWith(exitRefused, "the verification was not recorded: %s (%s): %s", answer.Decision, answer.Reason, answer.Detail)
	}
	v.Seq, v.ExpiresAt = answer.Seq, &at
	return nil
}
