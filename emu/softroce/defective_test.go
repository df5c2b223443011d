package softroce

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/defects/rocewire"
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// fatalDefects make an exchange of messages fail or hang.
var fatalDefects = []string{"AckPSNOff"}

// A device with defects does not panic on a link that loses, duplicates and corrupts packets, and
// with most defects all messages arrive.
func TestDefectiveDevicesKeepRunning(t *testing.T) {
	lossy := impair.Config{Specs: []impair.Spec{{LossPPM: 30_000, DuplicatePPM: 20_000, CorruptPPM: 20_000}}}
	for _, q := range defects.All(new(rocewire.Defects)) {
		t.Run(q.Name, func(t *testing.T) {
			var cfg rocewire.Defects
			must.Do(t, defects.Set(&cfg, q.Name, true))
			err := echoWith(t, cfg, lossy)
			var panicked *sim.PanicError
			if errors.As(err, &panicked) {
				t.Fatalf("%v\n%s", panicked.Value, panicked.Stack)
			}
			if !slices.Contains(fatalDefects, q.Name) && err != nil {
				t.Error(err)
			}
		})
	}
}

// echoWith exchanges messages between a device with defects and one without.
func echoWith(t *testing.T, defects rocewire.Defects, spec impair.Config) error {
	w, ports := providertest.Cable{Seed: 3, MaxEvents: 200_000, Up: spec, Link: sim.LinkConfig{Latency: time.Microsecond, MTU: 4200}}.Open(t)
	defer w.Close()
	a := openOn(t, w, ports[0], ports[0], Config{Name: "defective", Defects: defects})
	b := openOn(t, w, ports[1], ports[1], Config{Name: "correct"})
	echoOf(a, b, 20).InWorld(t, w)
	return w.RunPrograms()
}
