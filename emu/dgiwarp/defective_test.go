package dgiwarp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/mutant"
)

// A device with a defect does not panic, and exchanges messages with a sound device on a link
// that loses packets, unless noticedByEcho names the defect.
func TestDefectiveDevicesKeepRunning(t *testing.T) {
	for _, q := range defects.Shared.All() {
		t.Run(q.Name, func(t *testing.T) {
			var cfg Config
			if !defects.Shared.Set(&cfg.NIC.Policy, q.Name) {
				t.Fatal("no such defect")
			}
			keepsRunning(t, q.Name, cfg)
		})
	}
}

// TestMutantsKeepRunning is TestDefectiveDevicesKeepRunning for mutants, which both devices have.
// Only a build with mutants runs it: that of TestOtherTestsFindMutants in package defects.
func TestMutantsKeepRunning(t *testing.T) {
	if len(mutant.Names()) == 0 {
		t.Skip("this test was built without mutants; the conform step of CI runs it with them")
	}
	for _, m := range defects.Mutants() {
		if !slices.Equal(m.Providers, []string{"dgiwarp"}) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			if !mutant.Select(m.Name) {
				t.Fatal("no such mutant")
			}
			defer mutant.Select("")
			keepsRunning(t, m.Name, Config{})
		})
	}
}

// keepsRunning fails if a device with a defect panics, or if an exchange of messages fails
// although noticedByEcho does not name the defect.
func keepsRunning(t *testing.T, defect string, cfg Config) {
	t.Helper()
	lossy := impair.Config{Specs: []impair.Spec{{LossPPM: 30_000, DuplicatePPM: 20_000, ReorderPPM: 20_000, ReorderDelay: 50 * time.Microsecond, CorruptPPM: 20_000}}}
	noticed := false
	for _, opt := range []QPOptions{reliable, unreliable} {
		spec := lossy
		if !opt.Reliable {
			spec = impair.Config{}
		}
		err := echoWith(t, cfg, opt, spec)
		var broken *sim.PanicError
		if errors.As(err, &broken) {
			t.Fatalf("%v\n%s", broken.Value, broken.Stack)
		}
		noticed = noticed || err != nil
	}
	if noticed != slices.Contains(noticedByEcho, defect) {
		t.Errorf("echo fails: %v", noticed)
	}
}

// noticedByEcho are the defects that keep two programs from exchanging messages, at least if the
// link loses packets.
var noticedByEcho = []string{
	"PacketsPadded", "CRCMostFirst", "CRCUnchecked", "StartFlagOnce", "ChallengeIgnored", "PathMTUIgnored",
	"SourceLost", "UDWaitsForPeer", "BusyHoldsWrites", "DeliversAsTheyCome", "GapsForgotten",
}

// echoWith lets a device with the configuration cfg and one with the default configuration
// exchange messages, and returns the error of the programs.
func echoWith(t *testing.T, cfg Config, opt QPOptions, spec impair.Config) error {
	w := sim.New(sim.Config{Seed: 3, MaxTime: mono.Time(time.Minute), MaxEvents: 100_000})
	defer w.Close()
	net := must.Get(sim.NewNet(w, sim.NetConfig{Dissector: Dissector{}}))(t)
	defective, sound := attach(t, w, net, addrA, spec, cfg), attach(t, w, net, addrB, spec, Config{})
	exchange{newEnd(t, defective, opt), newEnd(t, sound, opt), 20}.inWorld(w)
	return w.RunPrograms()
}
