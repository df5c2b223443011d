package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// Capabilities reports whether this machine can boot guests, and whether this program can
// be the agent in them.
func Capabilities() []netns.Capability {
	dir, err := DefaultImageDir()
	if err == nil {
		err = Check()
	}
	return []netns.Capability{kernelGuests(ImageCache{Dir: dir}, err), agentLibrary(ibv.Linked)}
}

// kernelGuests reports which kernels can be booted, and how to get the others. why is the
// reason if no guest can run.
func kernelGuests(cache ImageCache, why error) netns.Capability {
	c := netns.Capability{
		Name: "kernel guests", State: netns.Yes,
		For: "Linux's own soft-RoCE and soft-iWARP as devices and as peers (lab kernel, certify)",
	}
	if why != nil {
		c.State = netns.No
		c.Reason, c.Cure = reasonAndCure(why)
		return c
	}
	var built, missing []string
	var cannot error
	for _, series := range []Series{Linux61, Linux612} {
		if _, err := cache.Find(series, true); err == nil {
			built = append(built, string(series))
			continue
		}
		missing = append(missing, string(series))
		cannot = cache.Check(series, true)
	}
	switch {
	case len(missing) == 0:
		return c
	case cannot != nil:
		c.State = netns.No
		c.Reason, c.Cure = reasonAndCure(cannot)
	default:
		c.State = netns.Limited
		c.Reason = fmt.Sprintf("no image of Linux %s yet: the first that needs it makes it, which takes some minutes and a network", strings.Join(missing, ", "))
		c.Cure = "fabrictest lab kernel build --kernel " + missing[0]
	}
	if len(built) > 0 {
		c.State = netns.Limited
		c.Reason = fmt.Sprintf("Linux %s is there; %s", strings.Join(built, ", "), c.Reason)
	}
	return c
}

// reasonAndCure splits an error into its reason and the command that helps.
func reasonAndCure(err error) (reason, cure string) {
	var missing *MissingError
	var none *netns.UnavailableError
	switch {
	case errors.As(err, &missing):
		return fmt.Sprintf("missing: %s", strings.Join(missing.Missing, ", ")), missing.Install
	case errors.As(err, &none):
		return none.Reason, none.Cure
	}
	return err.Error(), ""
}

// agentLibrary reports whether this program can be the agent of a real device.
func agentLibrary(linked bool) netns.Capability {
	c := netns.Capability{Name: "libibverbs", For: "this program as the agent on the host of a real device (agent)", State: netns.Yes}
	if !linked {
		c.State, c.Reason = netns.No, "this program was built without it"
		c.Cure = "Debian: apt install gcc libibverbs-dev librdmacm-dev, then go build -tags ibverbs ./cmd/fabrictest"
	}
	return c
}
