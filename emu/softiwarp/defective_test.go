package softiwarp

import (
	"errors"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// A device with any defect of a profile, in either role, on streams that are split at random, does
// not panic.
func TestDefectiveDevicesKeepRunning(t *testing.T) {
	for _, q := range slices.Concat(defects.IWARP.All(), defects.MPA.All(), defects.RDMAP.All(), defects.Shared.All()) {
		t.Run(q.Name, func(t *testing.T) {
			for role := range 2 {
				var broken *sim.PanicError
				if errors.As(echoWith(t, q.Name, role), &broken) {
					t.Fatalf("role %d: %v\n%s", role, broken.Value, broken.Stack)
				}
			}
		})
	}
}

// echoWith lets a device with a defect and one without exchange messages, and returns the error
// of the programs. The device with the defect connects, or accepts if role is 1.
func echoWith(t *testing.T, name string, role int) error {
	var defective Config
	if !defects.SetSoftIWARP(&defective.NIC.Policy, name) {
		t.Fatalf("no defect %s", name)
	}
	cfgs := []Config{defective, {}}
	if role == 1 {
		slices.Reverse(cfgs)
	}
	split := sim.StreamConfig{CutPPM: 200_000, BufferBytes: 9000}
	w, a, b := pairInWorld(t, 7, sim.NetConfig{Stream: split}, cfgs...)
	defer w.Close()
	echoOf(a, b, 20).InWorld(t, w)
	return w.RunPrograms()
}
