package mpi_test

import (
	"errors"
	"flag"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/conformance/mpi/ideal"
)

func TestCasesAreWellFormed(t *testing.T) {
	all := cases.Cases()
	for _, err := range conformance.CheckCases(all) {
		t.Error(err)
	}
	if len(all) < 150 {
		t.Errorf("%d cases, want at least 150", len(all))
	}
}

// legal are runtimes that MPI allows. A case that fails on one of them requires more than the
// standard.
var legal = []ideal.Options{
	{Eager: -1},
	{Eager: -1, Polling: true},
	{Eager: 4096},
	{Eager: 4096, Polling: true},
	{Eager: 1 << 30},
	{Eager: 1 << 30, Polling: true},
}

// seeds is the number of runs of each case on each legal runtime.
var seeds = flag.Uint64("seeds", 1, "how many seeds of the ideal runtime")

// Without -everywhere or -part a case runs with one of the three eager limits.
func TestCasesPassOnEveryLegalRuntime(t *testing.T) {
	for k, c := range cases.Cases() {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			for i, o := range legal {
				if cases.NeedsBackground(&c) && o.Polling || !*everywhere && !part.Given() && i/2 != k%3 {
					continue
				}
				for seed := range *seeds {
					o.Ranks, o.PerNode, o.Seed = c.Setup.Ranks, c.Setup.PerNode, uint64(i)+seed*100
					if err := ideal.Run(o, func(w cases.World) error { return cases.RunOn(&c, w) }); err != nil {
						t.Fatalf("eager %d, polling %v, seed %d: %v", o.Eager, o.Polling, o.Seed, err)
					}
				}
			}
		})
	}
}

// A case that no defect makes fail proves nothing.
func TestEveryCaseFailsOnItsDefects(t *testing.T) {
	for _, c := range cases.Cases() {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			for _, name := range c.Defects {
				defects, err := ideal.Named(name)
				if err != nil {
					t.Error(err)
					continue
				}
				if err := caught(c, defects); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// caught returns nil if the case fails in one of several runs on a defective runtime: some defects
// show by chance.
func caught(c cases.Case, defects ideal.Defects) error {
	for seed := range uint64(12) {
		o := ideal.Options{Ranks: c.Setup.Ranks, PerNode: c.Setup.PerNode, Seed: seed, Eager: 4096, Steps: 400_000, Defects: defects}
		err := ideal.Run(o, func(w cases.World) error { return cases.RunOn(&c, w) })
		var hung *ideal.HungError
		switch {
		case err == nil:
		case conformance.IsViolation(err), errors.As(err, &hung):
			return nil
		default:
			return err
		}
	}
	return errors.New("the case passes")
}

func TestEveryDefectHasACase(t *testing.T) {
	named := make(map[string]bool)
	for _, c := range cases.Cases() {
		for _, m := range c.Defects {
			named[m] = true
		}
	}
	for name, does := range ideal.Descriptions() {
		if does == "" {
			t.Errorf("defect %s has no description", name)
		}
		if !named[name] {
			t.Errorf("no case detects %s: %s", name, does)
		}
	}
}

// Cases leave no messages or requests in the runtime: they can run in turn in one world.
func TestCasesRunInTurn(t *testing.T) {
	all := func(w cases.World) error { return cases.InTurn(w, func(*cases.Case) bool { return true }) }
	if err := ideal.Run(ideal.Options{Ranks: 7, PerNode: 2, Eager: 4096, Steps: 20_000_000}, all); err != nil {
		t.Error(err)
	}
}
