package interop

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
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
	// UCMatose is ucmatose: sends over connections. RDMA is rdma_client and rdma_server.
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

// Run acts as one end of an ibv_*_pingpong program on dev until both ends have sent and received
// p.Iters messages. It checks the length, the sender and the bytes of every message. The programs
// send from the buffer that they receive into, so that a byte damaged in either direction is found.
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

// validate returns an error for parameters that the program (Tool) does not support.
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

// sentPayload returns the payload of our message n on a queue pair; for a peer with -c, the first
// byte of each page is zero. With several queue pairs all messages are equal, because
// ibv_srq_pingpong receives them in one buffer.
func (p PingPong) sentPayload(n int) payload {
	if p.QPs > 1 {
		n = 0
	}
	if p.Check {
		return numbered(n).checked()
	}
	return numbered(n)
}

// expectedPayloads returns the payloads that message n from the peer on a queue pair may have; each
// byte may be from any of them.
func (p PingPong) expectedPayloads(n int) []payload {
	if p.Role == Client {
		return []payload{p.sentPayload(n)} // the echo of our n-th
	}
	if n > 0 {
		return []payload{p.sentPayload(n - 1)}
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
		return []payload{first, p.sentPayload(0)}
	}
	return []payload{first}
}

// done is the client's message after it has received the server's endpoints.
const done = "done\x00"

// retryPause is the time between attempts to connect to a peer that does not listen yet.
const retryPause = 20 * time.Millisecond

// dial connects to the side channel of a program that may not listen yet.
func dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	var dialer net.Dialer
	var refused error
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr.String())
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			refused = err
		case errors.Is(err, context.DeadlineExceeded): // the dialer may report it before ctx.Err
		case err == nil || ctx.Err() == nil:
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody listens: %w", cmp.Or(refused, err))
		case <-time.After(retryPause):
		}
	}
}

// accept waits for one connection on addr. It calls ready, unless that is nil, when it listens.
func accept(ctx context.Context, addr netip.AddrPort, ready func()) (net.Conn, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	if ready != nil {
		ready()
	}
	conn, err := listener.Accept()
	if ctx.Err() != nil {
		err = fmt.Errorf("no client connected: %w", context.Cause(ctx))
	}
	return conn, err
}

// exchangeAsClient sends our endpoints, and receives, acknowledges and returns the server's.
func exchangeAsClient(conn io.ReadWriter, mine []Endpoint) ([]Endpoint, error) {
	if err := writeEndpoints(conn, mine); err != nil {
		return nil, err
	}
	theirs, err := readEndpoints(conn, len(mine))
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, done)
	return theirs, err
}

// exchangeAsServer receives the endpoints of the client, one for each of mine, and calls connect
// with them. Only then it sends mine, because the client may send messages to our queue pairs as
// soon as it has their endpoints. It waits for the client's acknowledgement.
func exchangeAsServer(conn io.ReadWriter, mine []Endpoint, connect func([]Endpoint) error) error {
	theirs, err := readEndpoints(conn, len(mine))
	if err != nil {
		return err
	}
	if err := connect(theirs); err != nil {
		return err
	}
	if err := writeEndpoints(conn, mine); err != nil {
		return err
	}
	got := make([]byte, len(done))
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("waiting for the client's %q: %w", done, err)
	}
	if string(got) != done {
		return fmt.Errorf("client said %q, want %q", got, done)
	}
	return nil
}

// writeEndpoints writes a line for each endpoint, all in one write: a peer program may read once
// only, and expects whole lines then.
func writeEndpoints(w io.Writer, endpoints []Endpoint) error {
	lines := make([]byte, 0, len(endpoints)*EndpointLen)
	for _, e := range endpoints {
		lines = e.Append(lines)
	}
	_, err := w.Write(lines)
	return err
}

// readEndpoints reads n endpoints, each a line with a NUL at its end.
func readEndpoints(r io.Reader, n int) ([]Endpoint, error) {
	lines := make([]byte, n*EndpointLen)
	if got, err := io.ReadFull(r, lines); err != nil {
		return nil, fmt.Errorf("%d of %d bytes of endpoints: %w", got, len(lines), err)
	}
	endpoints := make([]Endpoint, n)
	for i := range endpoints {
		var err error
		if lines, err = endpoints[i].Parse(lines); err != nil {
			return nil, fmt.Errorf("endpoint %d: %w", i, err)
		}
	}
	return endpoints, nil
}

// EndpointLen is the size of an Endpoint on the side channel: 51 characters and a NUL.
const EndpointLen = len("0000:000000:000000:") + 2*16 + 1

// ErrEndpoint is returned for a line that is not an endpoint.
var ErrEndpoint = errors.New("not an endpoint line")

// Endpoint is the line that the ibv_*_pingpong programs exchange for a queue pair: lid:qpn:psn:gid,
// in hexadecimal digits of fixed width.
type Endpoint struct {
	LID uint16 // always 0 on Ethernet
	QPN verbs.QPN
	PSN uint32
	GID verbs.GID
}

// Append appends e as ibv_rc_pingpong and its siblings send it to the other side: a line with LID,
// QPN, PSN and GID in hexadecimal digits, ended by a NUL.
func (e Endpoint) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%06x:%06x:", e.LID, uint32(e.QPN), e.PSN)
	b = hex.AppendEncode(b, e.GID[:])
	return append(b, 0)
}

// Parse parses the line at the start of b and returns the bytes after it. Unlike the
// ibv_*_pingpong programs, it requires the exact form.
func (e *Endpoint) Parse(b []byte) (rest []byte, err error) {
	if len(b) < EndpointLen {
		return nil, fmt.Errorf("%w: %d of %d bytes", ErrEndpoint, len(b), EndpointLen)
	}
	line := b[:EndpointLen]
	if line[4] != ':' || line[11] != ':' || line[18] != ':' || line[51] != 0 {
		return nil, fmt.Errorf("%w: %q", ErrEndpoint, line)
	}
	lid, err1 := strconv.ParseUint(string(line[:4]), 16, 16)
	qpn, err2 := strconv.ParseUint(string(line[5:11]), 16, 24)
	psn, err3 := strconv.ParseUint(string(line[12:18]), 16, 24)
	_, err4 := hex.Decode(e.GID[:], line[19:51])
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrEndpoint, line, err)
	}
	e.LID, e.QPN, e.PSN = uint16(lid), verbs.QPN(qpn), uint32(psn)
	return b[EndpointLen:], nil
}
