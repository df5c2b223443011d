package mpirun

import (
	"errors"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// oneDevice is a provider that lists a device without a network interface.
type oneDevice struct{}

func (oneDevice) Name() string { return "fake" }
func (oneDevice) Devices() ([]verbs.DeviceInfo, error) {
	return []verbs.DeviceInfo{{Name: "fake-verbs0"}}, nil
}

func (oneDevice) Open(device string) (verbs.Context, error) {
	return nil, &verbs.OpError{Op: "open_device", Obj: device, Err: verbs.ErrNotFound}
}

func TestDevicesNeedAnAddress(t *testing.T) {
	for name, want := range map[string]string{
		"other":       "open_device other: ",
		"fake-verbs0": "device fake-verbs0: its network interface (unknown) has no routable address",
	} {
		c := configOf("exchange", 2, 1)
		c.Devices = []string{name}
		if _, err := OnDevices(t.Context(), oneDevice{}, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// The command line of a run on devices repeats it: a device is a rail, and there is no --on.
func TestCommandLineNamesDevices(t *testing.T) {
	c := configOf("ring", 4, 1)
	c.Devices, c.Rails, c.Seed = []string{"rxe0", "rxe1"}, 2, 1
	s := Settings{Loss: "0%", Design: "srq"}
	const want = "fabrictest mpirun -n 4 --device=rxe0,rxe1 --design=srq ring"
	if got := s.CommandLine("fabrictest mpirun", onDevice, &c, []string{"ring"}); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	f, err := c.TuningFabric(onDevice)
	if err != nil || f.Tier != onDevice || f.Provider != ibv.ProviderName || f.Rails != 2 {
		t.Errorf("fabric %+v, %v", f, err)
	}
}

// Without libibverbs the error says how to build the program.
func TestDeviceTierNeedsLibrary(t *testing.T) {
	_, err := DeviceTier()
	switch {
	case ibv.Linked && err != nil:
		t.Error(err)
	case !ibv.Linked && (!errors.Is(err, verbs.ErrNotSupported) || !strings.Contains(err.Error(), "-tags ibverbs")):
		t.Errorf("%v: want how to build the program", err)
	}
}
