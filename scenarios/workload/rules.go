package workload

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// rules are the permitted values and the defaults of a kind of workload.
type rules struct {
	services []string
	ops      []string // the first is the default; empty without Op
	minRanks int

	messages, bytes, depth int // defaults

	cm        bool
	reconnect bool
	pause     bool
}

var kinds = map[Kind]rules{
	Stream: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD, ServiceRD}, ops: []string{OpSend, OpWrite, OpRead},
		minRanks: 2, messages: 1000, bytes: 64 << 10, depth: 16, cm: true, reconnect: true, pause: true,
	},
	PingPong: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceRD}, ops: []string{OpSend, OpWrite},
		minRanks: 2, messages: 1000, bytes: 8, depth: 1, cm: true, reconnect: true,
	},
	Random: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD, ServiceRD},
		minRanks: 2, messages: 200, bytes: 16 << 10, depth: 64, pause: true,
	},
	Incast: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD, ServiceRD}, ops: []string{OpSend, OpWrite, OpRead},
		minRanks: 2, messages: 200, bytes: 64 << 10, depth: 16, reconnect: true, pause: true,
	},
	AllToAll: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD, ServiceRD}, ops: []string{OpSend, OpWrite, OpRead},
		minRanks: 2, messages: 20, bytes: 4 << 10, depth: 8, reconnect: true, pause: true,
	},
	Halo: {
		services: []string{ServiceRC, ServiceSRQ, ServiceRD}, ops: []string{OpWrite, OpRead},
		minRanks: 2, messages: 50, bytes: 8 << 10, depth: 2, reconnect: true,
	},
	Calls: {
		services: []string{ServiceRC},
		minRanks: 2, messages: 25, bytes: 4 << 10, depth: 5, cm: true, reconnect: true,
	},
}

// WithDefaults fills in the defaults for a fabric of this many hosts. Timeout and RNRTimer
// stay zero: their defaults depend on whether time is virtual.
func (c Config) WithDefaults(hosts int) Config {
	k, ok := kinds[c.Kind]
	if !ok {
		return c
	}
	if c.Ranks == 0 {
		c.Ranks = hosts
	}
	if len(c.Services) == 0 {
		c.Services = []string{ServiceRC}
		if c.Kind == Random {
			c.Services = withoutRD(k.services)
		}
	}
	if c.Op == "" && len(k.ops) > 0 {
		c.Op = k.ops[0]
	}
	if c.Messages == 0 {
		c.Messages = k.messages
	}
	if c.Bytes == 0 {
		c.Bytes = k.bytes
		if c.Kind != Random && c.service() == ServiceUD {
			c.Bytes = min(c.Bytes, datagramBytes)
		}
	}
	if c.Depth == 0 {
		c.Depth = k.depth
	}
	seven := 7
	if c.Retries == nil {
		c.Retries = &seven
	}
	if c.RNRRetries == nil {
		c.RNRRetries = &seven
	}
	return c
}

// withoutRD removes rd, which replaces rc on devices without connections.
func withoutRD(services []string) []string {
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return s == ServiceRD })
}

// ForDevice selects rd as the default service on devices without rc that have rd. Workloads
// that need connections keep rc, and random tries all services.
func (c Config) ForDevice(caps verbs.Caps) Config {
	natural := len(c.Services) == 0 && c.Kind != Random && !c.CM && slices.Contains(kinds[c.Kind].services, ServiceRD)
	if natural && !caps.Has(verbs.CapRC) && caps.Has(verbs.CapRD) {
		c.Services = []string{ServiceRD}
	}
	return c
}

// Uses reports whether the workload uses a service, explicitly or by default.
func (c Config) Uses(service string) bool {
	return slices.Contains(c.WithDefaults(0).Services, service)
}

// datagramBytes is the default size of datagrams. It fits every Ethernet MTU.
const datagramBytes = 1024
