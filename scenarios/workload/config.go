package workload

import (
	"slices"
	"time"
)

// Config is the workload section of a scenario. Kind determines which fields apply;
// Validate reports those that do not.
type Config struct {
	Kind  Kind `yaml:"kind" json:"kind"`
	Ranks int  `yaml:"ranks,omitempty" json:"ranks,omitempty"` // one per host; default: all hosts

	// Services are the transport services: rc, srq (rc with a shared receive queue), xrc,
	// uc, ud, rd (reliable datagrams: one queue pair for all peers). Only random takes more
	// than one.
	Services []string `yaml:"services,omitempty" json:"services,omitempty"`
	// Op is the operation that moves the data: send, write, read.
	Op string `yaml:"op,omitempty" json:"op,omitempty"`

	// Messages is the number of messages of a connection in each direction, of rounds of a
	// halo, and of requests of random for each service and side.
	Messages int `yaml:"messages,omitempty" json:"messages,omitempty"`
	// Bytes is the size of a message, or the largest size.
	Bytes int `yaml:"bytes,omitempty" json:"bytes,omitempty"`
	// Depth is the number of outstanding requests; for calls, the number of messages of a
	// call.
	Depth int `yaml:"depth,omitempty" json:"depth,omitempty"`

	// MTU is the path MTU by rank, which allows a deliberate mismatch. The last value
	// applies to all further ranks.
	MTU []int `yaml:"mtu,omitempty" json:"mtu,omitempty"`
	// Timeout is the ack timeout, rounded up to a value of the 5-bit field. Retries and
	// RNRRetries are the retry counts; 7 RNR retries are infinite. RNRTimer is the minimum
	// RNR NAK timer.
	Timeout    time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	Retries    *int          `yaml:"retries,omitempty" json:"retries,omitempty"`
	RNRRetries *int          `yaml:"rnr_retries,omitempty" json:"rnr_retries,omitempty"`
	RNRTimer   time.Duration `yaml:"rnr_timer,omitempty" json:"rnr_timer,omitempty"`

	// Pause is the time between batches of receives of a slow receiver. Senders do not wait
	// for credits then.
	Pause time.Duration `yaml:"pause,omitempty" json:"pause,omitempty"`
	// Think is the time that a rank computes between messages, rounds or calls.
	Think time.Duration `yaml:"think,omitempty" json:"think,omitempty"`
	// Reconnect makes a rank reconnect after an error and send again the messages that have
	// not arrived.
	Reconnect bool `yaml:"reconnect,omitempty" json:"reconnect,omitempty"`
	// Failover makes a rank switch to another rail after an error. Without Reconnect a
	// failed rail is not used again.
	Failover bool `yaml:"failover,omitempty" json:"failover,omitempty"`
	// Spin polls completion queues instead of waiting for events.
	Spin bool `yaml:"spin,omitempty" json:"spin,omitempty"`
	// CM connects through the connection manager.
	CM bool `yaml:"cm,omitempty" json:"cm,omitempty"`
	// Excuses are faults that are not violations: loses, duplicates and reorders for
	// unreliable services, and gives_up for reliable services of random, whose retries may
	// be exhausted.
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

// excused reports whether a fault is not a violation.
func (c *Config) excused(what string) bool { return slices.Contains(c.Excuses, what) }

// service is the service of all kinds but random.
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

// mtu is the path MTU of a rank in bytes; 0: that of the port.
func (c *Config) mtu(rank int) int {
	if len(c.MTU) == 0 {
		return 0
	}
	return c.MTU[min(rank, len(c.MTU)-1)]
}
