package workload

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// needs are what services need of a device.
var needs = map[string]verbs.Caps{
	ServiceRC: verbs.CapRC, ServiceSRQ: verbs.CapRC | verbs.CapSRQ, ServiceXRC: verbs.CapXRC, ServiceUC: verbs.CapUC, ServiceUD: verbs.CapUD,
	ServiceRD: verbs.CapRD,
}

// UnsupportedServices are the services of the workload that a device with these capabilities
// does not have.
func (c *Config) UnsupportedServices(caps verbs.Caps) []string {
	services := c.WithDefaults(0).Services
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return caps.Has(needs[s]) })
}

// RunsIntoRNR reports whether the workload has messages come where no receive
// waits for them, on purpose.
func (c *Config) RunsIntoRNR() bool { return c.Pause > 0 }

// AckTimeout is how long a packet waits for its acknowledgement in real time before it
// is sent again.
func (c *Config) AckTimeout() time.Duration {
	code, _ := c.timing(true)
	return timeoutOf(code)
}

// IsTimeout reports whether a program ended because it waited too long for something,
// or for a rank that had ended.
func IsTimeout(err error) bool {
	var stuck *StallError
	return errors.As(err, &stuck) || errors.Is(err, verbs.ErrTimeout) || errors.Is(err, ErrGone)
}

// RetryBudget is how long the reliable service waits for an answer before it sends again,
// how long it goes on with that in all, and how long it asks a receiver that has no
// receive. Each is 0 where the workload says nothing, and the last where it is to go
// on without end. It is for services that have no such fields of their own.
func (c *Config) RetryBudget() (wait, all, busy time.Duration) {
	d := c.WithDefaults(0)
	if c.Timeout > 0 {
		wait = timeoutOf(timeoutCode(c.Timeout))
		all = wait * time.Duration(*d.Retries+1)
	}
	if *d.RNRRetries < foreverRetries {
		_, code := d.timing(false)
		busy = rnrTime(code) * time.Duration(*d.RNRRetries+1)
	}
	return wait, all, busy
}

// foreverRetries are RNR retries without end.
const foreverRetries = 7

// NeedsImmediateData reports whether messages may be lost that are too short to say which they
// are, so that only immediate data in them could.
func (c *Config) NeedsImmediateData() bool {
	d := c.WithDefaults(0)
	return d.Kind != Random && !reliable(d.service()) && d.Bytes < stampLen
}

// mannersOf are those of the rank's devices, which are all alike, and what they can
// do.
func mannersOf(r *Rank) (m traffic.Manners, caps verbs.Caps, err error) {
	if len(r.NICs) == 0 {
		return m, 0, errors.New("the host has no NIC")
	}
	dev := r.NICs[0].Device
	attr, err := dev.QueryDevice()
	if err != nil {
		return m, 0, err
	}
	m, err = traffic.MannersOf(dev)
	return m, attr.Caps, err
}

// fits refuses what devices cannot do.
func (c *Config) fits(provider string, m *traffic.Manners, caps verbs.Caps) error {
	switch lacking := c.UnsupportedServices(caps); {
	case len(lacking) > 0:
		return fmt.Errorf("%s has no %s", provider, join(lacking))
	case m.NoRNR && c.RunsIntoRNR():
		return fmt.Errorf("pause: over %s a message that finds no receive ends the connection", provider)
	case m.BareImm && c.NeedsImmediateData():
		return fmt.Errorf("bytes: %d are too few to say which message it is, and over %s immediate data does not come with one", c.Bytes, provider)
	}
	return nil
}
