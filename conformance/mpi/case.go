package mpi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// Case is one rule of MPI. Its body is the program of every rank, and stops the rank if the
// rule is violated. Its defects are those of the ideal runtime.
type Case = conformance.CaseOf[func(*T)]

// Background labels cases in which the runtime must make progress while the program
// computes. The standard requires that; a runtime in mode Polling does not do it.
const Background = "progress:background"

var background = []string{Background}

// ranks is the setup of a case with n ranks, each on a host of its own.
func ranks(n int) conformance.Setup { return conformance.Setup{Ranks: n} }

// inPairs is the setup of a case with n ranks, two on each host.
func inPairs(n int) conformance.Setup { return conformance.Setup{Ranks: n, PerNode: 2} }

// NeedsBackground reports whether a case requires progress in the background.
func NeedsBackground(c *Case) bool { return slices.Contains(c.Labels, Background) }

// RunOn runs a case as one of its ranks. It returns nil if this rank saw no violation, a
// [*conformance.Violation] if it did, and another error if the world has the wrong size.
func RunOn(c *Case, w World) (err error) {
	if w.Size() != c.Setup.Ranks {
		return fmt.Errorf("case %s is for %d ranks, and there are %d", c.ID, c.Setup.Ranks, w.Size())
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case rankFailed:
			err = fmt.Errorf("%s, rank %d: %w", c.ID, w.Rank(), p.violation)
		default:
			panic(p)
		}
	}()
	t := &T{Comm: w, w: w, windows: new([]*W)}
	c.Run(t)
	for len(*t.windows) > 0 {
		(*t.windows)[0].free() // also removes it from t.windows
	}
	return nil
}

// rankFailed is the panic of a rank that saw a violation.
type rankFailed struct{ violation error }

// Cases returns all cases, by section. They have two ranks unless their setup says otherwise.
func Cases() []Case {
	return conformance.WithGroup(conformance.Group{Setup: ranks(2)}, slices.Concat(
		orderCases, wildcardCases, modeCases, bufferedCases, truncateCases, emptyCases, nullCases, selfCases,
		probeCases, matchedCases, cancelCases, persistentCases, waitCases, testCases, requestCases,
		sizeCases, floodCases, exchangeCases, progressCases, interleavingCases,
		commCases, splitCases, worldCases, argumentCases, handlerCases,
		barrierCases, collectiveCases,
		windowCases, fenceCases, pscwCases, lockCases, flushCases, rmaRequestCases, assertCases,
		accumulateCases, atomicCases, rmaErrorCases,
	))
}

// rule cites MPI 3.1 by rows of the ledger, mpi/SECTION/NUMBER. The first has the cited section.
func rule(rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "MPI 3.1", Section: strings.Split(rows[0], "/")[1], Rows: rows}
}
