package workload

import (
	"slices"
	"time"
)

// Config is the workload section of a scenario. Which fields count depends on
// Kind; Validate says what does not fit.
type Config struct {
	Kind  Kind `yaml:"kind" json:"kind"`
	Ranks int  `yaml:"ranks,omitempty" json:"ranks,omitempty"` // one a host; all hosts by default

	// Services are what the traffic uses: rc, srq (rc with a shared receive
	// queue), xrc, uc, ud, rd (reliable datagrams: one queue pair for all peers).
	// Only random takes more than one.
	Services []string `yaml:"services,omitempty" json:"services,omitempty"`
	// Op is what moves the data: send, write, read.
	Op string `yaml:"op,omitempty" json:"op,omitempty"`

	// Messages are those of a flow: of a connection and a direction. A halo has as
	// many rounds, and random as many requests for each service and side.
	Messages int `yaml:"messages,omitempty" json:"messages,omitempty"`
	// Bytes is the size of a message, the largest where sizes vary.
	Bytes int `yaml:"bytes,omitempty" json:"bytes,omitempty"`
	// Depth is how many requests are outstanding; for calls, how many messages
	// each one has.
	Depth int `yaml:"depth,omitempty" json:"depth,omitempty"`

	// MTU is the path MTU of the connections, by rank if it is given more than
	// once (a mismatch on purpose); the last one is that of all further ranks.
	MTU []int `yaml:"mtu,omitempty" json:"mtu,omitempty"`
	// Timeout is the time before a packet is sent again, rounded up to what the
	// 5-bit field can say; Retries and RNRRetries how often (7 RNR retries are
	// without end). RNRTimer is what a receiver without receives asks to wait.
	Timeout    time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	Retries    *int          `yaml:"retries,omitempty" json:"retries,omitempty"`
	RNRRetries *int          `yaml:"rnr_retries,omitempty" json:"rnr_retries,omitempty"`
	RNRTimer   time.Duration `yaml:"rnr_timer,omitempty" json:"rnr_timer,omitempty"`

	// Pause is how long a receiver leaves between batches of receives: a slow
	// one. Senders do not wait for its leave then, but run into it.
	Pause time.Duration `yaml:"pause,omitempty" json:"pause,omitempty"`
	// Think is what each rank computes between messages, rounds or calls.
	Think time.Duration `yaml:"think,omitempty" json:"think,omitempty"`
	// Reconnect makes a rank connect anew after an error, and send again what had
	// not arrived.
	Reconnect bool `yaml:"reconnect,omitempty" json:"reconnect,omitempty"`
	// Failover makes it send on another rail instead when one is broken. Without
	// Reconnect each rail is given up for good when it fails.
	Failover bool `yaml:"failover,omitempty" json:"failover,omitempty"`
	// Spin polls completion queues instead of waiting for events.
	Spin bool `yaml:"spin,omitempty" json:"spin,omitempty"`
	// CM connects through the connection manager.
	CM bool `yaml:"cm,omitempty" json:"cm,omitempty"`
	// Excuses are what the fabric may do to unreliable services: loses,
	// duplicates, reorders; and gives_up, for random's reliable ones, whose
	// retries may be exhausted.
	Excuses []string `yaml:"excuses,omitempty" json:"excuses,omitempty"`
}

// Kind names a workload.
type Kind string

// The workloads. Where there are several rails, each pair of ranks that
// exchanges anything does so once on every rail; random and calls take one.
const (
	Stream   Kind = "stream"     // rank 2i to rank 2i+1, one way, Op
	PingPong Kind = "pingpong"   // rank 2i and rank 2i+1, a message at a time
	Random   Kind = "random"     // rank 2i and rank 2i+1: every verb, checked against a model
	Incast   Kind = "incast"     // every rank to rank 0, Op
	AllToAll Kind = "all-to-all" // every rank to every other
	Halo     Kind = "halo"       // neighbours on a ring write into each other's borders, round by round
	Calls    Kind = "calls"      // connections made through the connection manager, used and closed
)

// What Services, Op and Excuses may hold.
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

// excused reports whether the fabric may do something.
func (c *Config) excused(what string) bool { return slices.Contains(c.Excuses, what) }

// service is the one that all kinds but random use.
func (c *Config) service() string {
	if len(c.Services) == 0 {
		return ServiceRC
	}
	return c.Services[0]
}

// reliable reports whether a service promises delivery.
func reliable(service string) bool { return service != ServiceUC && service != ServiceUD }

// datagram reports whether receives of a service begin with where a message came
// from.
func datagram(service string) bool { return service == ServiceUD || service == ServiceRD }

// mtu is the path MTU that a rank sets, in bytes; 0 leaves it to the port.
func (c *Config) mtu(rank int) int {
	if len(c.MTU) == 0 {
		return 0
	}
	return c.MTU[min(rank, len(c.MTU)-1)]
}
