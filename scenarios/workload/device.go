package workload

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// requiredCaps are the capabilities that services need.
var requiredCaps = map[string]verbs.Caps{
	ServiceRC: verbs.CapRC, ServiceSRQ: verbs.CapRC | verbs.CapSRQ, ServiceXRC: verbs.CapXRC, ServiceUC: verbs.CapUC, ServiceUD: verbs.CapUD,
	ServiceRD: verbs.CapRD,
}

// UnsupportedServices returns the workload's services that a device with these capabilities lacks.
func (c *Config) UnsupportedServices(caps verbs.Caps) []string {
	services := c.WithDefaults(anyHosts).Services
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return caps.Has(requiredCaps[s]) })
}

// RunsIntoRNR reports whether messages deliberately arrive before a receive is posted.
func (c *Config) RunsIntoRNR() bool { return c.Pause > 0 }

// AckTimeout is the ack timeout of devices that run in real time, not in a simulation.
func (c *Config) AckTimeout() time.Duration {
	const concurrent = true
	code, _ := c.timing(concurrent)
	return verbs.AckTimeout(code)
}

// IsTimeout reports whether a program ended because of a timeout or because another rank ended.
func IsTimeout(err error) bool {
	var stuck *traffic.StallError
	return errors.As(err, &stuck) || errors.Is(err, verbs.ErrTimeout) || errors.Is(err, ErrGone)
}

// RetryBudget returns the ack timeout, the total time of retransmissions, and the total time of
// retries after RNR NAKs, for devices whose queue pairs lack these attributes. A value of 0 means
// not configured; rnrTime is also 0 for infinite retries.
func (c *Config) RetryBudget() (ackTimeout, retransmitTime, rnrTime time.Duration) {
	const infiniteRNRRetries = 7 // the RNR retry count without limit
	d := c.WithDefaults(anyHosts)
	if c.Timeout > 0 {
		ackTimeout = verbs.AckTimeout(verbs.AckTimeoutFor(c.Timeout))
		retransmitTime = ackTimeout * time.Duration(*d.Retries+1)
	}
	if *d.RNRRetries < infiniteRNRRetries {
		_, code := d.timing(false) // RNR timers do not depend on Rank.Concurrent
		rnrTime = rnrTimeOf(code) * time.Duration(*d.RNRRetries+1)
	}
	return ackTimeout, retransmitTime, rnrTime
}

// NeedsImmediateData reports whether immediate data must carry the number of each message, because
// the service may lose messages and they are too short to hold it. Random traffic never needs it.
func (c *Config) NeedsImmediateData() bool {
	d := c.WithDefaults(anyHosts)
	return d.Kind != Random && !reliable(d.service()) && d.Bytes < traffic.StampLen
}

// deviceTraits returns the traits and capabilities of the rank's devices, which are all alike.
func deviceTraits(r *Rank) (traits traffic.TransportTraits, caps verbs.Caps, err error) {
	if len(r.NICs) == 0 {
		return traits, 0, errors.New("the host has no NIC")
	}
	dev := r.NICs[0].Device
	attr, err := dev.QueryDevice()
	if err != nil {
		return traits, 0, err
	}
	traits, err = traffic.TraitsOf(dev)
	return traits, attr.Caps, err
}

// checkDevice rejects a workload that devices cannot run.
func (c *Config) checkDevice(provider string, traits *traffic.TransportTraits, caps verbs.Caps) error {
	switch lacking := c.UnsupportedServices(caps); {
	case len(lacking) > 0:
		return fmt.Errorf("%s has no %s", provider, join(lacking))
	case traits.NoRNR && c.RunsIntoRNR():
		return fmt.Errorf("pause: over %s a message without a posted receive ends the connection", provider)
	case traits.SeparateImm && c.NeedsImmediateData():
		return fmt.Errorf("bytes: %d are too few to hold the message number, and %s has no immediate data with a message", c.Bytes, provider)
	}
	return nil
}
