package workload

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// needs are what services need of a device.
var needs = map[string]verbs.Caps{
	ServiceRC: verbs.CapRC, ServiceSRQ: verbs.CapRC | verbs.CapSRQ, ServiceXRC: verbs.CapXRC, ServiceUC: verbs.CapUC, ServiceUD: verbs.CapUD,
}

// Lacking are the services of the workload that a device with these capabilities
// does not have.
func (c *Config) Lacking(caps verbs.Caps) []string {
	services := c.WithDefaults(0).Services
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return caps.Has(needs[s]) })
}

// RunsIntoRNR reports whether the workload has messages come where no receive
// waits for them, on purpose.
func (c *Config) RunsIntoRNR() bool { return c.Pause > 0 }

// mannersOf are those of the rank's devices, which are all alike. It refuses what
// the devices cannot do.
func mannersOf(cfg *Config, r *Rank) (m traffic.Manners, err error) {
	if len(r.NICs) == 0 {
		return m, errors.New("the host has no NIC")
	}
	dev := r.NICs[0].Device
	attr, err := dev.QueryDevice()
	if err != nil {
		return m, err
	}
	if m, err = traffic.MannersOf(dev); err != nil {
		return m, err
	}
	if lacking := cfg.Lacking(attr.Caps); len(lacking) > 0 {
		return m, fmt.Errorf("%s has no %s", dev.Info().Provider, join(lacking))
	}
	if m.NoRNR && cfg.RunsIntoRNR() {
		return m, fmt.Errorf("pause: over %s a message that finds no receive ends the connection", dev.Info().Provider)
	}
	return m, nil
}
