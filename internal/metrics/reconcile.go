package metrics

func (m *Metrics) describeReconciler() {
	m.reconciled = m.counters("reconciled_total", "Looks of this process's reconciler at unknown attempts, by what came of them: settled, running, not_found, "+
		"other_attempt, bad_answer, no_answer, replayed, not_replayed.", "provider", "outcome")
	m.workersLost = m.counter("workers_lost_total", "Attempts that this process made unknown because their workers were gone.")
}

// Reconciled counts what came of looking at an unknown attempt once.
func (m *Metrics) Reconciled(provider, outcome string) {
	m.reconciled.WithLabelValues(m.providers.bound(provider), outcome).Inc()
}

// WorkerLost counts an attempt whose worker is gone. Workers' names are no
// label: each process has another one.
func (m *Metrics) WorkerLost(string) { m.workersLost.Inc() }
