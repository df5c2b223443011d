package workload

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// rules is what one kind of workload allows, and what it takes where a
// scenario says nothing.
type rules struct {
	services []string
	ops      []string // the first is the default; empty where Op says nothing
	minRanks int

	messages, bytes, depth int // defaults

	cm        bool // may connect through the connection manager
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

// WithDefaults fills in what a scenario left out, for a fabric of so many hosts.
// Timeout and RNRTimer stay zero where they are not given: what is sensible
// depends on whether time is virtual.
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
			c.Services = connected(k.services)
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

// connected are the services without rd, which stands in the place of rc where there
// are no connections.
func connected(services []string) []string {
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return s == ServiceRD })
}

// ForDevice has a workload that names no service use the reliable one of a device with
// these capabilities, if that is not rc: the same is promised of both. What only
// connections have stays with rc, and so does random, which is to try all services.
func (c Config) ForDevice(caps verbs.Caps) Config {
	natural := len(c.Services) == 0 && c.Kind != Random && !c.CM && slices.Contains(kinds[c.Kind].services, ServiceRD)
	if natural && !caps.Has(verbs.CapRC) && caps.Has(verbs.CapRD) {
		c.Services = []string{ServiceRD}
	}
	return c
}

// Uses reports whether the workload names a service, or has it by default.
func (c Config) Uses(service string) bool {
	return slices.Contains(c.WithDefaults(0).Services, service)
}

// datagramBytes is the size of datagrams where nothing is said: what fits the
// MTU of every Ethernet.
const datagramBytes = 1024
