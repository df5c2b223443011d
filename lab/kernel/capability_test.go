package kernel

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/netns"
)

// What is missing for guests is named with the command that gets it.
func TestCapabilitiesNameTheCure(t *testing.T) {
	empty := ImageCache{Dir: t.TempDir()}
	noQEMU := &MissingError{Missing: []string{"qemu-system-x86_64"}, Purpose: "virtual machines", Install: "apt-get install qemu-system-x86"}
	for _, c := range []struct {
		why          error
		reason, cure string
	}{
		{noQEMU, "missing: qemu-system-x86_64", "apt-get install qemu-system-x86"},
		{&netns.UnavailableError{Reason: "users may not", Cure: "as root: sysctl", Err: errors.New("EPERM")}, "users may not", "as root: sysctl"},
		{errors.New("/dev/net/tun cannot be opened"), "/dev/net/tun cannot be opened", ""},
	} {
		if got := kernelGuests(empty, c.why); got.State != netns.No || got.Reason != c.reason || got.Cure != c.cure {
			t.Errorf("%v: %+v", c.why, got)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	t.Setenv("PATH", t.TempDir()) // neither an image nor what makes one
	if got := kernelGuests(empty, nil); got.State != netns.No || !strings.Contains(got.Reason, "apt-get") || !strings.Contains(got.Cure, "apt-get install") {
		t.Errorf("nothing to make an image with: %+v", got)
	}
	if got := agentLibrary(false); got.State != netns.No || !strings.Contains(got.Cure, "-tags ibverbs") {
		t.Errorf("without libibverbs: %+v", got)
	}
}
