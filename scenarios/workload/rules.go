package workload

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
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD}, ops: []string{OpSend, OpWrite, OpRead},
		minRanks: 2, messages: 1000, bytes: 64 << 10, depth: 16, cm: true, reconnect: true, pause: true,
	},
	PingPong: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC}, ops: []string{OpSend, OpWrite},
		minRanks: 2, messages: 1000, bytes: 8, depth: 1, cm: true, reconnect: true,
	},
	Random: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD},
		minRanks: 2, messages: 200, bytes: 16 << 10, depth: 64, pause: true,
	},
	Incast: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD}, ops: []string{OpSend, OpWrite, OpRead},
		minRanks: 2, messages: 200, bytes: 64 << 10, depth: 16, reconnect: true, pause: true,
	},
	AllToAll: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD}, ops: []string{OpSend, OpWrite, OpRead},
		minRanks: 2, messages: 20, bytes: 4 << 10, depth: 8, reconnect: true, pause: true,
	},
	Halo: {
		services: []string{ServiceRC, ServiceSRQ}, ops: []string{OpWrite, OpRead},
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
			c.Services = k.services
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

// datagramBytes is the size of datagrams where nothing is said: what fits the
// MTU of every Ethernet.
const datagramBytes = 1024
