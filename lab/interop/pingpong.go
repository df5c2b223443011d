package interop

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Tool is a program of rdma-core that the peer runs.
type Tool string

// The programs that this package acts as the other end of.
const (
	RC     Tool = "rc"  // ibv_rc_pingpong
	UC     Tool = "uc"  // ibv_uc_pingpong
	UD     Tool = "ud"  // ibv_ud_pingpong
	SRQ    Tool = "srq" // ibv_srq_pingpong: reliable, several queue pairs, one receive queue
	RPing  Tool = "rping"
	UDAddy Tool = "udaddy" // datagrams between queue pairs that the connection manager found
	// UCMatose is ucmatose: sends over connections; RDMA, rdma_client and rdma_server:
	// one send each way.
	UCMatose Tool = "ucmatose"
	RDMA     Tool = "rdma"
)

// Role is the role of our end.
type Role string

// The client connects and sends first.
const (
	Client Role = "client"
	Server Role = "server"
)

// Constants of the ibv_*_pingpong programs.
const (
	PingPongPort = 18515      // default port of the side channel
	pingPongQKey = 0x11111111 // of both ends of ibv_ud_pingpong
	srqEndpoints = 256        // number of endpoint lines that ibv_srq_pingpong always exchanges
)

// PingPong is one run of an ibv_*_pingpong program. Run acts as one end of it. Tool, Size,
// Iters, QPs and Check must be the same at both ends.
type PingPong struct {
	Tool Tool
	Role Role
	// SideChannel is where the server listens for the client's TCP connection.
	SideChannel netip.AddrPort
	// Local is our address on the fabric; the device must have its GID.
	Local netip.Addr
	Size  int
	Iters int // messages in each direction, over all queue pairs
	QPs   int // of SRQ; the others have one
	MTU   verbs.MTU
	// Events makes our end wait for completion events instead of polling.
	Events bool
	// Check is true if the peer runs with -c.
	Check bool
	// Ready, if set, is called when a client may connect to our server.
	Ready func()
}

// Result counts the messages of a run.
type Result struct {
	Sent     int
	Received int
	Elapsed  time.Duration
}

// Run acts as one end of the program on dev until both ends have sent and received p.Iters
// messages. It checks the length, the sender and the bytes of every message. The programs send
// from the buffer that they receive into, so that a byte damaged in either direction is found.
func (p PingPong) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if err := p.validate(); err != nil {
		return Result{}, err
	}
	r, err := newPingPongRun(p, dev)
	if err != nil {
		return Result{}, fmt.Errorf("setting up: %w", err)
	}
	return r.run(ctx)
}

// validate checks the parameters.
func (p PingPong) validate() error {
	switch p.Tool {
	case RC, UC, UD:
		if p.QPs > 1 {
			return fmt.Errorf("%s has one queue pair, not %d", p.Tool, p.QPs)
		}
	case SRQ:
		if p.QPs < 1 || p.QPs > srqEndpoints {
			return fmt.Errorf("srq has 1 to %d queue pairs, not %d", srqEndpoints, p.QPs)
		}
	default:
		return fmt.Errorf("%q is not rc, uc, ud or srq", p.Tool)
	}
	if p.Size < 1 || p.Iters < 1 || p.MTU.Bytes() == 0 {
		return fmt.Errorf("size %d, iterations %d and MTU %v must be positive", p.Size, p.Iters, p.MTU)
	}
	if p.Tool == UD && p.Size > p.MTU.Bytes() {
		return fmt.Errorf("a datagram of %d bytes does not fit into an MTU of %v", p.Size, p.MTU)
	}
	return nil
}

// qpType returns the type of the queue pairs.
func (p PingPong) qpType() verbs.QPType {
	switch p.Tool {
	case UC:
		return verbs.QPTypeUC
	case UD:
		return verbs.QPTypeUD
	default:
		return verbs.QPTypeRC
	}
}

// sends returns the payload of our message n on a queue pair. The queue pairs of ibv_srq_pingpong
// share a buffer at the peer, so with more than one all messages are equal.
func (p PingPong) sends(n int) payload {
	if p.QPs > 1 {
		n = 0
	}
	if p.Check {
		return numbered(n).checked()
	}
	return numbered(n)
}

// expects returns the payloads that message n from the peer on a queue pair may have; each byte may
// be of any of them.
func (p PingPong) expects(n int) []payload {
	if p.Role == Client {
		return []payload{p.sends(n)} // the echo of our n-th
	}
	if n > 0 {
		return []payload{p.sends(n - 1)}
	}
	// The client's first message is the initial contents of its buffer ...
	first := constant(fillByte)
	if p.Tool == SRQ {
		first = constant(0)
	}
	if p.Check {
		first = first.checked()
	}
	if p.QPs > 1 { // ... or a message that another queue pair has received meanwhile.
		return []payload{first, p.sends(0)}
	}
	return []payload{first}
}
