package mpi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// Case is one thing that MPI promises to programs.
type Case struct {
	// ID never changes and is never used again: mpi/topic/behaviour.
	ID string
	// Title is what the runtime must do, in a sentence.
	Title string
	Cite  conformance.Cite
	// Ranks is how many it takes; PerNode how many of them are to be on one host, 1 if 0.
	Ranks, PerNode int
	// Does and Expects tell people what the ranks do and what they want to see.
	Does, Expects string
	// Alone says that the runtime has to progress while the program is busy: the
	// standard demands it, and a runtime in mode Polling gives it up for speed.
	Alone bool
	// Defects are defects of the ideal runtime, each of which makes the case fail. A case
	// without one is unproven.
	Defects []string
	// Run is the program of every rank. It ends by itself where what it sees is not
	// what it must be.
	Run func(*T)
}

// Topic is the second part of the ID.
func (c *Case) Topic() string { return strings.Split(c.ID, "/")[1] }

// RunOn runs the case as one of its ranks. It returns nil if this rank saw nothing
// wrong, and a [*conformance.Violation] otherwise. Anything else: the world does not fit.
func (c *Case) RunOn(w World) (err error) {
	if w.Size() != c.Ranks {
		return fmt.Errorf("case %s is for %d ranks, and there are %d", c.ID, c.Ranks, w.Size())
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case ended:
			err = fmt.Errorf("%s, rank %d: %w", c.ID, w.Rank(), p.violation)
		default:
			panic(p)
		}
	}()
	c.Run(&T{Comm: w, w: w})
	return nil
}

// ended unwinds a rank that saw something wrong.
type ended struct{ violation error }

// Cases returns all of them, by section.
func Cases() []Case {
	return slices.Concat(
		orderCases, wildcardCases, modeCases, bufferedCases, truncateCases, emptyCases, nullCases, selfCases,
		probeCases, matchedCases, cancelCases, persistentCases, waitCases, testCases, requestCases,
		sizeCases, floodCases, exchangeCases, progressCases,
		commCases, splitCases, worldCases, argumentCases, handlerCases,
		barrierCases, collectiveCases,
		windowCases, fenceCases, pscwCases, lockCases, flushCases, rmaRequestCases, assertCases,
		accumulateCases, atomicCases, rmaErrorCases,
	)
}

// Find returns the case with an ID.
func Find(id string) (Case, error) {
	for _, c := range Cases() {
		if c.ID == id {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("there is no case %q", id)
}

// Check looks for cases that are not well formed.
func Check(cases []Case) error {
	var errs []error
	seen := make(map[string]bool)
	for i := range cases {
		c := &cases[i]
		bad := func(why string) { errs = append(errs, fmt.Errorf("case %s: %s", c.ID, why)) }
		if parts := strings.Split(c.ID, "/"); len(parts) != 3 || parts[0] != "mpi" || c.ID != strings.ToLower(c.ID) || strings.ContainsAny(c.ID, " _*") {
			bad("the ID must be mpi/topic/behaviour, in lower case with hyphens")
		}
		if seen[c.ID] {
			bad("the ID is taken")
		}
		seen[c.ID] = true
		if c.Title == "" || c.Does == "" || c.Expects == "" {
			bad("Title, Does and Expects tell people what it does")
		}
		if c.Cite.Section == "" || len(c.Cite.Rows) == 0 {
			bad("it cites no section, or no row of the ledger")
		}
		if c.Ranks < 1 || c.PerNode < 0 {
			bad("it needs a number of ranks")
		}
		if len(c.Defects) == 0 {
			bad("it names no defect: a case that nothing can make fail proves nothing")
		}
		if c.Run == nil {
			bad("it has no body")
		}
	}
	return errors.Join(errs...)
}

// rule cites MPI 3.1: a section, and rows of the ledger.
func rule(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "MPI 3.1", Section: section, Rows: rows}
}
