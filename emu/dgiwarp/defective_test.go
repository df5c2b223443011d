package dgiwarp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects/dgwire"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// Whatever is wrong with a device, on a link that loses packets besides, it does
// not break down; and most defects do not keep messages from arriving.
func TestDefectiveDevicesKeepRunning(t *testing.T) {
	lossy := impair.Config{Specs: []impair.Spec{{LossPPM: 30_000, DuplicatePPM: 20_000, ReorderPPM: 20_000, ReorderDelay: 50 * time.Microsecond, CorruptPPM: 20_000}}}
	for _, q := range slices.Concat(dgwire.AllDefects(), engine.AllDefects()) {
		t.Run(q.Name, func(t *testing.T) {
			var cfg Config
			if cfg.Defects.Set(q.Name, true) != nil {
				if err := cfg.NIC.Defects.Set(q.Name, true); err != nil {
					t.Fatal(err)
				}
			}
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
			if noticed != slices.Contains(noticedByEcho, q.Name) {
				t.Errorf("echo fails: %v", noticed)
			}
		})
	}
}

// noticedByEcho are the defects that keep two programs from exchanging messages, on
// a bad network at least.
var noticedByEcho = []string{
	"PacketsPadded", "CRCMostFirst", "CRCUnchecked", "CRCCoversPorts", "KeysUnused", "StartFlagOnce", "ChallengeIgnored", "PathMTUIgnored",
	"SourceLost", "BusyHoldsWrites", "DeliversAsTheyCome", "GapsForgotten",
}

// echoWith has a defective device and a sound one exchange messages.
func echoWith(t *testing.T, cfg Config, opt QPOptions, spec impair.Config) error {
	w := sim.New(sim.Config{Seed: 3, MaxTime: mono.Time(time.Minute), MaxEvents: 100_000})
	defer w.Close()
	net, err := sim.NewNet(w, sim.NetConfig{Dissector: Dissector{}})
	if err != nil {
		t.Fatal(err)
	}
	client, server := mustEnd(t, attach(t, w, net, addrA, spec, cfg), opt), mustEnd(t, attach(t, w, net, addrB, spec, Config{}), opt)
	w.Go("server", func(*sim.Proc) error { return echoServer(server, 20, func() {}) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		return echoClient(client, server.where(), 20)
	})
	return w.RunPrograms()
}
