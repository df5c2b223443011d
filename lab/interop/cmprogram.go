package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Default ports of the servers, and the message size of rdma_client and rdma_server.
const (
	RPingPort    = 7174
	UDAddyPort   = 7174 // udaddy has no option for it
	UCMatosePort = 7471
	RDMAPort     = 7471
	RDMASize     = 16
)

// CMProgram is one run of a program of rdma-core that connects by rdma_cm. Run acts as one end.
//
//   - RPing: a ping is a send, an RDMA read, two sends, an RDMA write and a send. The client
//     advertises its data, the server reads it and replies; the client advertises its sink,
//     the server writes the data back and replies.
//   - UDAddy: the client asks the connection manager for the server's queue pair and sends it
//     datagrams, each with its own queue pair number as immediate data. The server sends as
//     many back.
//   - UCMatose: over each connection the server sends all its messages at once. When the client
//     has them it sends as many back, and the server disconnects. iWARP lets the server send
//     first only after a message of the client or enhanced connection setup.
//   - RDMA (rdma_client, rdma_server): the client sends 16 bytes, the server sends 16 others, and
//     both disconnect. Size and Count do not matter.
type CMProgram struct {
	Tool Tool
	Role Role           // of our end
	Addr netip.AddrPort // of the server
	// Local is our address on the fabric. Only UDAddy needs it.
	Local netip.Addr
	Size  int // of a message
	Count int // messages in each direction over a connection; with RPing, pings
	// Connections is how many connections RPing and UCMatose have at the same time. 0 is 1.
	Connections int
	// Events makes our end wait for completion events instead of polling.
	Events bool
	// SendDelay is the time before the server of UCMatose sends. A client on siw takes data
	// right behind the MPA reply for a breach of RFC 5044, and fails to connect.
	SendDelay time.Duration
	// Ready, if set, is called when our server listens.
	Ready func()
}

// validate returns an error if the tool, role, size or count of p is invalid. It sets the size and
// count of RDMA, which are fixed, and Connections if that is 0.
func (p *CMProgram) validate() error {
	least, most := 1, math.MaxInt
	switch p.Tool {
	case RPing:
		least, most = MinPingSize, MaxPingSize
	case UDAddy:
		least = verbs.GRHLen + 1 // a reply begins with the GRH of our datagram
	case UCMatose:
	case RDMA:
		p.Size, p.Count = RDMASize, 1
	default:
		return fmt.Errorf("%q does not connect by rdma_cm", p.Tool)
	}
	switch {
	case p.Role != Client && p.Role != Server:
		return fmt.Errorf("%q is not a role", p.Role)
	case p.Size < least || p.Size > most:
		return fmt.Errorf("%s takes messages of %d to %d bytes, not %d", p.Tool, least, most, p.Size)
	case p.Count < 1:
		return fmt.Errorf("%s takes a count of 1 or more, not %d", p.Tool, p.Count)
	}
	p.Connections = max(p.Connections, 1)
	return nil
}

// contents has the data of a program that sends messages. conn numbers the connections, n the
// messages of a connection in one direction, both from 0.
type contents struct {
	compose func(conn, n int, b []byte)       // writes a message
	inspect func(conn, n int, b []byte) error // checks a received message; with UDAddy, with its GRH
}

// contents returns functions that make our messages and check the peer's. Our messages all differ,
// except with udaddy.
func (p *CMProgram) contents() contents {
	content := contents{
		compose: func(conn, n int, b []byte) { numbered(conn*p.Count + n).fill(b) },
		inspect: func(int, int, []byte) error { return nil },
	}
	switch {
	case p.Tool == RDMA: // rdma_client and rdma_server send zeros
		content.inspect = func(_, _ int, b []byte) error { return check(b, constant(0)) }
	case p.Tool == UDAddy:
		// udaddy's server sends back only the last datagram that it received, so ours are alike.
		// The data of udaddy's client is the content of its uninitialized memory.
		content.compose = func(_, _ int, b []byte) { numbered(0).fill(b) }
		if p.Role == Client {
			content.inspect = func(_, _ int, b []byte) error { return checkUDAddyReply(b[verbs.GRHLen:], p.Local) }
		}
	case p.Role == Server: // ucmatose sends the last message that it received
		content.inspect = func(conn, _ int, b []byte) error { return check(b, numbered((conn+1)*p.Count-1)) }
	default: // the server sends its uninitialized memory, but every time the same
		first := make([][]byte, p.Connections)
		content.inspect = func(conn, n int, b []byte) error {
			if n == 0 {
				first[conn] = bytes.Clone(b)
			}
			if !bytes.Equal(b, first[conn]) {
				return fmt.Errorf("unlike message 0: %w", check(b, func(i int) byte { return first[conn][i] }))
			}
			return nil
		}
	}
	return content
}

// Run acts as one end of the program p.Tool on dev. It checks every completion, and all data that
// the peer's program determines.
func (p CMProgram) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if err := p.validate(); err != nil {
		return Result{}, err
	}
	return p.run(ctx, dev, p.contents())
}

// run runs our end of p.Tool, whose parameters are valid, with the given messages and checks.
func (p CMProgram) run(ctx context.Context, dev verbs.Context, content contents) (result Result, err error) {
	cm, err := dev.CM()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	switch p.Tool {
	case RPing:
		result, err = (&rpingRun{p, dev, cm}).run(ctx)
	case UDAddy:
		result, err = runUDAddy(ctx, p, dev, content)
	default:
		result, err = (&messageRun{CMProgram: p, contents: content, dev: dev, cm: cm}).run(ctx)
	}
	result.Elapsed = time.Since(start)
	return result, err
}

// cmTimeout bounds one step of the connection manager; the kernel retransmits its
// messages about every four seconds.
const cmTimeout = 30 * time.Second

// connParam is the request of rping: one RDMA read at a time in either direction.
var connParam = verbs.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// rcConn is one end of a connection: an RC queue pair and the other objects of a program.
type rcConn struct {
	resources
	qp   verbs.QP
	conn verbs.Conn // nil until it is connected
}

// rc gives connect and acceptRequest access to the rcConn that a connection embeds.
func (c *rcConn) rc() *rcConn { return c }

// createQP creates the queue pair in state Init, where receives can be posted: the peer may
// send as soon as it is connected. An iWARP queue pair takes no partition key and no port.
func (c *rcConn) createQP(caps verbs.QPCaps, access verbs.Access) {
	c.qp = c.resources.createQP(verbs.QPInit{Type: verbs.QPTypeRC, Caps: caps})
	mask := verbs.QPAttrState | verbs.QPAttrAccessFlags
	if c.dev.Info().Transport != verbs.TransportIWARP {
		mask |= verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	}
	c.do(func() error {
		return c.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, Access: access}, mask)
	})
}

// connect creates a queue pair by newConn, and connects it to a server. It retries while the server
// does not listen yet. A rejected queue pair cannot be used again, so each attempt calls newConn.
func connect[C interface{ rc() *rcConn }](ctx context.Context, cm verbs.CM, addr netip.AddrPort, newConn func() (C, error)) (C, error) {
	for {
		c, err := newConn()
		if err != nil {
			return c, err
		}
		if c.rc().conn, err = cm.Connect(c.rc().qp, addr, connParam, cmTimeout); err == nil {
			return c, nil
		}
		err = errors.Join(fmt.Errorf("connecting to %v: %w", addr, err), c.rc().close())
		var rejected *verbs.RejectError // by InfiniBand's connection manager; under iWARP, TCP refuses
		if !errors.Is(err, syscall.ECONNREFUSED) && !(errors.As(err, &rejected) && rejected.Reason == noListener) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return c, fmt.Errorf("nobody listens: %w", err)
		case <-time.After(retryPause):
		}
	}
}

// noListener is the reason with which InfiniBand's connection manager rejects a
// request to a port without a listener.
const noListener = 8

// listen listens on addr, and then calls ready, which may be nil.
func listen(cm verbs.CM, addr netip.AddrPort, space verbs.PortSpace, backlog int, ready func()) (verbs.Listener, error) {
	listener, err := cm.Listen(addr, space, backlog)
	if err != nil {
		return nil, fmt.Errorf("listening on %v: %w", addr, err)
	}
	if ready != nil {
		ready()
	}
	return listener, nil
}

// nextRequest waits for a connection request, or for the end of ctx.
func nextRequest(ctx context.Context, listener verbs.Listener) (verbs.ConnRequest, error) {
	return retryTimeouts(ctx, "no client connected", listener.GetRequest)
}

// acceptRequest creates a queue pair by newConn, and accepts a connection request with it. If
// newConn fails, it rejects the request.
func acceptRequest[C interface{ rc() *rcConn }](request verbs.ConnRequest, newConn func() (C, error)) (C, error) {
	c, err := newConn()
	if err != nil {
		return c, errors.Join(err, request.Reject(nil))
	}
	if c.rc().conn, err = request.Accept(c.rc().qp, connParam, cmTimeout); err != nil {
		return c, errors.Join(fmt.Errorf("accepting %v: %w", request.Remote(), err), c.rc().close())
	}
	return c, nil
}

// awaitDisconnect waits until the peer has disconnected, or for the end of ctx.
func awaitDisconnect(ctx context.Context, conn verbs.Conn) error {
	_, err := retryTimeouts(ctx, "the peer does not end the connection", func(timeout time.Duration) (struct{}, error) {
		return struct{}{}, conn.WaitDisconnect(timeout)
	})
	return err
}

// retryTimeouts calls wait again while it returns ErrTimeout. If ctx ends first, the error consists
// of problem and the cause of ctx.
func retryTimeouts[T any](ctx context.Context, problem string, wait func(timeout time.Duration) (T, error)) (T, error) {
	for {
		result, err := wait(eventSlice)
		if !errors.Is(err, verbs.ErrTimeout) {
			return result, err
		}
		if ctx.Err() != nil {
			return result, fmt.Errorf("%s: %w", problem, context.Cause(ctx))
		}
	}
}
