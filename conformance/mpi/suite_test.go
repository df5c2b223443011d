package mpi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// A failure names the case and the set-up:
//
//	go test ./conformance/mpi -run TestRuntime -ginkgo.focus mpi/order/same-envelope -setup 'softroce srq rget polling clean'
func TestRuntime(t *testing.T) {
	RunSpecs(t, "The multi-rank runtime by the rules of MPI")
}

var _ = Describe("in simulation", func() {
	all := setups()
	for k, p := range providers {
		provider := p.Name
		Describe(provider, Label("device:"+provider), func() {
			var of []setup
			for _, s := range all {
				if s.provider == provider {
					of = append(of, s)
				}
			}
			for i, c := range cases.Cases() {
				if !*everywhere && !part.Given() && *only == "" && !runsByDefault(i, k) {
					continue // the runs in one world have every case
				}
				It(c.ID+": "+c.Title, Label("topic:"+strings.Split(c.ID, "/")[1]), func() {
					for _, s := range chosen(c, i, of) {
						if err := on(c, s, *worldSeed); err != nil {
							Fail(fmt.Sprintf("%s on %v: %v", c.ID, s, err))
						}
					}
				})
			}
		})
	}

	// In one world, a case meets the state that earlier cases left in the runtime. By default a
	// case runs in one of the worlds.
	Describe("all cases in one world", func() {
		for i, s := range []setup{
			{"softroce", carrier.RingSRQ, p2p.Speculative, mpi.Background, "loss", 0, "", false},
			{"softiwarp", carrier.SRQ, p2p.RPUT, mpi.Polling, "clean", -1, "two rails", true},
			{"dgiwarp", carrier.Hybrid, p2p.RGET, mpi.Polling, "all", 40_000, "", false},
		} {
			It("runs every case on "+s.String(), func() {
				if err := run(s, 7, 2, *worldSeed+uint64(i), everyCase(s.progress, i)); err != nil {
					Fail(err.Error())
				}
			})
		}
	})

	// The runtime must reject the set-ups that hasDesign leaves out.
	It("rejects designs with datagrams on NICs without UD", func() {
		for _, d := range carrier.Designs() {
			s := setup{"softiwarp", d, p2p.RGET, mpi.Polling, "clean", 0, "", false}
			err := run(s, 2, 1, *worldSeed, func(cases.World) error { return nil })
			switch {
			case !datagrams(d):
				if err != nil {
					Fail(fmt.Sprintf("%s: %v", d, err))
				}
			case err == nil || !strings.Contains(err.Error(), "no datagrams"):
				Fail(fmt.Sprintf("%s: %v, want an error that names datagrams", d, err))
			}
		}
	})
})

// runsByDefault reports whether case i has a world of its own on provider k: every second case has,
// on one provider.
func runsByDefault(i, k int) bool { return i%(2*len(providers)) == 2*k }

// chosen returns the set-ups that a case runs on: all, or some that differ from case to case.
func chosen(c cases.Case, i int, all []setup) (some []setup) {
	for _, s := range all {
		if (!cases.NeedsBackground(&c) || s.progress == mpi.Background) && strings.Contains(s.String(), *only) {
			some = append(some, s)
		}
	}
	if part.Given() {
		all, some = some, nil
		for k, s := range all {
			if part.Has(i*len(all) + k) {
				some = append(some, s)
			}
		}
		return some
	}
	if *everywhere || *only != "" {
		return some
	}
	rotated := make([]setup, 0, *often)
	for k := range min(*often, len(some)) {
		rotated = append(rotated, some[(7*(i/(2*len(providers)))+k*31)%len(some)])
	}
	return rotated
}

// everyCase returns a program that runs the cases of world k in turn: all, or by default a third.
func everyCase(mode mpi.ProgressMode, k int) func(cases.World) error {
	which := regexp.MustCompile(*match)
	return func(w cases.World) error {
		i := 0
		return cases.InTurn(w, func(c *cases.Case) bool {
			i++
			inWorld := *everywhere || part.Given() || *match != "" || i%3 == k || cases.NeedsBackground(c)
			return inWorld && (!cases.NeedsBackground(c) || mode == mpi.Background) && which.MatchString(c.ID)
		})
	}
}

// The default run must not leave out any provider, design, protocol, mode or network.
func TestChosenSetupsCoverAll(t *testing.T) {
	covered := make(map[string]bool)
	for k, p := range providers {
		provider := p.Name
		var of []setup
		for _, s := range setups() {
			if s.provider == provider {
				of = append(of, s)
			}
		}
		for i, c := range cases.Cases() {
			if !runsByDefault(i, k) {
				continue
			}
			for _, s := range chosen(c, i, of) {
				covered[provider+" "+string(s.design)+" "+s.protocol.String()] = true
				covered[provider+" "+s.progress.String()] = true
				covered[provider+" "+s.network] = true
				covered[provider+" "+s.hosts] = true
				covered[provider+" "+fmt.Sprint(s.eager)] = true
			}
		}
		for _, s := range of {
			for _, want := range []string{string(s.design) + " " + s.protocol.String(), s.progress.String(), s.network, s.hosts, fmt.Sprint(s.eager)} {
				if want = provider + " " + want; !covered[want] {
					t.Errorf("no case runs on %s", strings.TrimSpace(want))
				}
			}
		}
	}
}
