package workload

import (
	"cmp"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Config is the workload section of a scenario. Kind determines which fields apply;
// Validate reports those that do not.
type Config struct {
	Kind  Kind `yaml:"kind" json:"kind"`
	Ranks int  `yaml:"ranks,omitempty" json:"ranks,omitempty"` // one per host; default: all hosts

	// Services are the transport services: rc, srq (rc with a shared receive queue), xrc, uc, ud,
	// rd (reliable datagrams: one queue pair for all peers). Only random takes more than one.
	Services []string `yaml:"services,omitempty" json:"services,omitempty"`
	// Op is the operation that moves the data: send, write, read. Every eighth write, and the
	// last before a sender waits, has immediate data; with depth 1 every write has.
	Op string `yaml:"op,omitempty" json:"op,omitempty"`

	// Messages is the number of messages of a connection in each direction, of rounds of a
	// halo, and of requests of random for each service and side.
	Messages int `yaml:"messages,omitempty" json:"messages,omitempty"`
	// Bytes is the size of a message, or the largest size.
	Bytes int `yaml:"bytes,omitempty" json:"bytes,omitempty"`
	// Depth is the number of outstanding requests; for calls, the number of messages of a call.
	Depth int `yaml:"depth,omitempty" json:"depth,omitempty"`

	// MTU is the path MTU by rank, which allows a deliberate mismatch. The last value
	// applies to all further ranks.
	MTU []int `yaml:"mtu,omitempty" json:"mtu,omitempty"`
	// Timeout is the ack timeout, rounded up to a value of the 5-bit field. Retries and RNRRetries
	// are the retry counts; 7 RNR retries are infinite. RNRTimer is the minimum RNR NAK timer.
	Timeout    time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	Retries    *int          `yaml:"retries,omitempty" json:"retries,omitempty"`
	RNRRetries *int          `yaml:"rnr_retries,omitempty" json:"rnr_retries,omitempty"`
	RNRTimer   time.Duration `yaml:"rnr_timer,omitempty" json:"rnr_timer,omitempty"`

	// Operation is the collective operation of collective; all if it is empty. Collectives are algorithms, as
	// bcast=chain,allgather=ring, where not the default ones.
	Operation   string `yaml:"operation,omitempty" json:"operation,omitempty"`
	Collectives string `yaml:"collectives,omitempty" json:"collectives,omitempty"`

	// Pause is the time between batches of receives of a slow receiver. Senders need no credits.
	Pause time.Duration `yaml:"pause,omitempty" json:"pause,omitempty"`
	// Think is the time that a rank computes between messages, rounds or calls.
	Think time.Duration `yaml:"think,omitempty" json:"think,omitempty"`
	// Reconnect makes a rank reconnect after an error and resend what has not arrived.
	Reconnect bool `yaml:"reconnect,omitempty" json:"reconnect,omitempty"`
	// Failover makes a rank switch to another rail after an error. Without Reconnect a
	// failed rail is not used again.
	Failover bool `yaml:"failover,omitempty" json:"failover,omitempty"`
	// Spin polls completion queues instead of waiting for events.
	Spin bool `yaml:"spin,omitempty" json:"spin,omitempty"`
	// CM connects through the connection manager.
	CM bool `yaml:"cm,omitempty" json:"cm,omitempty"`
	// Excuses are faults that are not violations: loses, duplicates and reorders for unreliable
	// services, and gives_up for reliable services of random, whose retries may be exhausted.
	Excuses []string `yaml:"excuses,omitempty" json:"excuses,omitempty"`
}

// Kind is the name of a workload.
type Kind string

// The workloads. With several rails, each pair of ranks that communicates does so on every
// rail; random and calls use one.
const (
	Stream   Kind = "stream"     // rank 2i to rank 2i+1, in one direction, with Op
	PingPong Kind = "pingpong"   // rank 2i and rank 2i+1, one message at a time
	Random   Kind = "random"     // rank 2i and rank 2i+1: all verbs, checked against a model
	Incast   Kind = "incast"     // every rank to rank 0, with Op
	AllToAll Kind = "all-to-all" // every rank to every other
	Halo     Kind = "halo"       // neighbours on a ring write into each other's borders, round by round
	Calls    Kind = "calls"      // connections made through the connection manager, used and closed
	// Collective is collective operations of the multi-rank runtime, among all ranks. Messages is the number of each.
	Collective Kind = "collective"
)

// Values of Services, Op and Excuses.
const (
	ServiceRC  = "rc"
	ServiceSRQ = "srq"
	ServiceXRC = "xrc"
	ServiceUC  = "uc"
	ServiceUD  = "ud"
	ServiceRD  = "rd"

	OpSend  = "send"
	OpWrite = "write"
	OpRead  = "read"

	ExcuseLoses      = "loses"
	ExcuseDuplicates = "duplicates"
	ExcuseReorders   = "reorders"
	ExcuseGivesUp    = "gives_up"
)

// excused reports whether Excuses lists a fault of the network, which then is no violation.
func (c *Config) excused(fault string) bool { return slices.Contains(c.Excuses, fault) }

// service returns the first transport service of the workload, by default rc. Only the workload
// "random" may have more.
func (c *Config) service() string {
	if len(c.Services) == 0 {
		return ServiceRC
	}
	return c.Services[0]
}

// reliable reports whether a service guarantees delivery.
func reliable(service string) bool { return service != ServiceUC && service != ServiceUD }

// datagram reports whether receives of a service begin with a GRH.
func datagram(service string) bool { return service == ServiceUD || service == ServiceRD }

// mtu is the path MTU of a rank in bytes; 0: that of the port. Later ranks have the last of c.MTU.
func (c *Config) mtu(rank int) int {
	if len(c.MTU) == 0 {
		return 0
	}
	return c.MTU[min(rank, len(c.MTU)-1)]
}

// rules are the permitted values and the defaults of a kind of workload.
type rules struct {
	services []string
	ops      []string // the first is the default; empty without Op

	messages, bytes, depth int // defaults

	cm        bool
	reconnect bool
	pause     bool
}

var (
	allServices = []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceUC, ServiceUD, ServiceRD}
	allOps      = []string{OpSend, OpWrite, OpRead}
)

var kinds = map[Kind]rules{
	Stream: {
		services: allServices, ops: allOps,
		messages: 1000, bytes: 64 << 10, depth: 16, cm: true, reconnect: true, pause: true,
	},
	PingPong: {
		services: []string{ServiceRC, ServiceSRQ, ServiceXRC, ServiceRD}, ops: []string{OpSend, OpWrite},
		messages: 1000, bytes: 8, depth: 1, cm: true, reconnect: true,
	},
	Random: {services: allServices, messages: 200, bytes: 16 << 10, depth: 64, pause: true},
	Incast: {
		services: allServices, ops: allOps,
		messages: 200, bytes: 64 << 10, depth: 16, reconnect: true, pause: true,
	},
	AllToAll: {
		services: allServices, ops: allOps,
		messages: 20, bytes: 4 << 10, depth: 8, reconnect: true, pause: true,
	},
	Halo: {
		services: []string{ServiceRC, ServiceSRQ, ServiceRD}, ops: []string{OpWrite, OpRead},
		messages: 50, bytes: 8 << 10, depth: 2, reconnect: true,
	},
	Calls:      {services: []string{ServiceRC}, messages: 25, bytes: 4 << 10, depth: 5, cm: true, reconnect: true},
	Collective: {services: []string{ServiceRC, ServiceRD}, messages: 20, bytes: 4 << 10, depth: 1},
}

// anyHosts is an argument of WithDefaults where the number of ranks does not matter.
const anyHosts = 0

// WithDefaults fills in the defaults for a fabric of this many hosts. Timeout and RNRTimer
// stay zero: their defaults depend on whether time is virtual.
func (c Config) WithDefaults(hosts int) Config {
	const datagramBytes = 1024 // default size of datagrams, which fits every Ethernet MTU
	k, ok := kinds[c.Kind]
	if !ok {
		return c
	}
	c.Ranks = cmp.Or(c.Ranks, hosts)
	if len(c.Services) == 0 {
		c.Services = []string{ServiceRC}
		if c.Kind == Random {
			// All but rd, which is for devices without connections.
			c.Services = slices.DeleteFunc(slices.Clone(k.services), func(s string) bool { return s == ServiceRD })
		}
	}
	if c.Op == "" && len(k.ops) > 0 {
		c.Op = k.ops[0]
	}
	c.Messages, c.Depth = cmp.Or(c.Messages, k.messages), cmp.Or(c.Depth, k.depth)
	if c.Bytes == 0 {
		c.Bytes = k.bytes
		if c.Kind != Random && c.service() == ServiceUD {
			c.Bytes = min(c.Bytes, datagramBytes)
		}
	}
	seven := 7
	c.Retries, c.RNRRetries = cmp.Or(c.Retries, &seven), cmp.Or(c.RNRRetries, &seven)
	return c
}

// ForDevice selects rd as the default service on devices without rc that have rd. Workloads
// that need connections keep rc, and random tries all services.
func (c Config) ForDevice(caps verbs.Caps) Config {
	mayUseRD := len(c.Services) == 0 && c.Kind != Random && !c.CM && slices.Contains(kinds[c.Kind].services, ServiceRD)
	if mayUseRD && !caps.Has(verbs.CapRC) && caps.Has(verbs.CapRD) {
		c.Services = []string{ServiceRD}
	}
	return c
}

// Uses reports whether the workload uses a service, explicitly or by default.
func (c Config) Uses(service string) bool {
	return slices.Contains(c.WithDefaults(anyHosts).Services, service)
}

// rnrTimes are the times of the RNR NAK timer codes 1 to 31 and 0, in units of 10 µs.
var rnrTimes = [...]time.Duration{
	1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536,
}

// rnrCode returns the RNR NAK timer code of the shortest time of at least d; 0, the code of the
// longest time, if there is none.
func rnrCode(d time.Duration) uint8 {
	for code := uint8(1); code < 32; code++ {
		if rnrTimeOf(code) >= d {
			return code
		}
	}
	return 0
}

// rnrTimeOf returns the time of an RNR NAK timer code.
func rnrTimeOf(code uint8) time.Duration { return rnrTimes[(code+31)%32] * 10 * time.Microsecond }

// Defaults. In virtual time a packet that is not acknowledged within a millisecond is lost;
// on a busy machine it may be late.
const (
	simTimeout  = time.Millisecond
	realTimeout = 60 * time.Millisecond
	rnrTimer    = 60 * time.Microsecond
)

// timing returns the codes of the ack timeout and the minimum RNR NAK timer. concurrent means that
// devices run in real time, not in a simulation.
func (c *Config) timing(concurrent bool) (timeout, rnr uint8) {
	d := simTimeout
	if concurrent {
		d = realTimeout
	}
	return verbs.AckTimeoutFor(cmp.Or(c.Timeout, d)), rnrCode(cmp.Or(c.RNRTimer, rnrTimer))
}
