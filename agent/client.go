package agent

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"sync"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/verbs"
)

// Client is the client's end of a connection to an agent: a verbs.Provider of that host's devices.
type Client struct {
	out    func(control.Frame) // does not block
	agent  string              // version of the agent
	memory *programMemories
	calls  control.Calls
	lostCh chan struct{} // closed when the connection is lost

	mu      sync.Mutex
	reason  error // why the connection was lost
	objects map[handle]any
	closed  []handle // of closed objects, oldest first

	closeConn func(reason error) // closes the connection
}

var _ verbs.Provider = (*Client)(nil)

// Dial connects to the agent at a TCP address.
func Dial(ctx context.Context, addr string, key Key) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the agent: %w", err)
	}
	c, err := NewClient(ctx, conn, key, Timing{})
	if err != nil {
		return nil, fmt.Errorf("agent at %s: %w", addr, err)
	}
	return c, nil
}

// NewClient makes a client on a connection to an agent, and takes ownership of it.
func NewClient(ctx context.Context, raw net.Conn, key Key, timing Timing) (*Client, error) {
	c, err := greet(ctx, raw, key, timing.withDefaults())
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// greet performs the TLS handshake, exchanges hellos and starts the client. An agent that rejects
// the key says so in an alert in the place of its hello.
func greet(ctx context.Context, raw net.Conn, key Key, timing Timing) (*Client, error) {
	config, err := tlsConfig(key, roleClient, roleAgent)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, timing.HandshakeTimeout)
	defer stop()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	frames := newConn(conn, timing, control.Reply)
	them, err := readHello(frames, timing.HandshakeTimeout, "this program", "the agent")
	switch {
	case err != nil && isKeyRejection(err):
		return nil, fmt.Errorf("%w: the agent rejected ours (%w)", ErrKey, err)
	case err != nil:
		return nil, err
	}
	const ownName = "" // fabrictest with its version
	if err := sendHello(frames, newHello(ownName, timing.IdleTimeout)); err != nil {
		return nil, err
	}
	c := newClient(func(f control.Frame) { _ = frames.QueueNow(f) }) // Serve returns the error
	c.agent, c.closeConn = them.Program, frames.Close
	go run(frames)
	go func() { c.fail(frames.Serve(c.receive)) }()
	return c, nil
}

// newClient returns a client that sends frames by out.
func newClient(out func(control.Frame)) *Client {
	c := &Client{out: out, lostCh: make(chan struct{}), objects: make(map[handle]any)}
	c.memory = newProgramMemories(func(body []byte) { c.out(control.Frame{Kind: kindMemory, Body: body}) })
	return c
}

// Name implements verbs.Provider.
func (c *Client) Name() string { return "agent" }

// Agent returns the version of the agent.
func (c *Client) Agent() string { return c.agent }

// Identity describes the agent's host and its devices.
func (c *Client) Identity() (id Identity, err error) {
	err = callIdentity.call(c, &id)
	return id, err
}

// Devices implements verbs.Provider.
func (c *Client) Devices() ([]verbs.DeviceInfo, error) {
	id, err := c.Identity()
	infos := make([]verbs.DeviceInfo, 0, len(id.Devices))
	for _, d := range id.Devices {
		infos = append(infos, d.Info)
	}
	return infos, err
}

// Open implements verbs.Provider. It returns verbs.ErrBusy for a device that another client uses.
func (c *Client) Open(device string) (verbs.Context, error) {
	var opened openedDevice
	if err := callOpen.call(c, &opened, device); err != nil {
		return nil, err
	}
	return &remoteContext{ref: ref{c, opened.Handle}, info: opened.Info, regions: make(map[*remoteMR]bool)}, nil
}

// SetLink sets a device's link up or down: see [Host.SetLink].
func (c *Client) SetLink(device string, up bool) error { return callSetLink.call(c, nil, device, up) }

// SetAddress adds or removes an address of a device: see [Host.SetAddress].
func (c *Client) SetAddress(device string, addr netip.Prefix, present bool) error {
	return callSetAddress.call(c, nil, device, addr, present)
}

// Restart resets a device: see [Host.Restart]. The client's open contexts of it are closed.
func (c *Client) Restart(device string) error { return callRestart.call(c, nil, device) }

// Close closes the connection. The agent closes everything opened over it.
func (c *Client) Close() error {
	c.fail(errors.New("the client was closed"))
	return nil
}

// Replies returns the number of answered calls.
func (c *Client) Replies() uint64 { return c.calls.Replies() }

// Lost is closed when the connection has ended; Err has the reason.
func (c *Client) Lost() <-chan struct{} { return c.lostCh }

// Err returns the reason for which the connection ended, wrapping ErrLost, or nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// fail ends the connection and all pending calls. Only the first reason is kept.
func (c *Client) fail(reason error) {
	c.mu.Lock()
	first := c.reason == nil
	if first {
		c.reason = &lostError{reason}
		close(c.lostCh)
	}
	c.mu.Unlock()
	c.calls.Close()
	if first && c.closeConn != nil {
		c.closeConn(reason)
	}
}

// receive passes on a frame from the agent: changes of memory to c.memory, a reply to the call that
// waits for it.
func (c *Client) receive(f control.Frame) error {
	if f.Kind == kindMemory {
		return c.memory.apply(f.Body)
	}
	return c.calls.Reply(f)
}

// call makes a call to the agent and decodes its result into result, a pointer; nil for no result.
func (v *verb) call(c *Client, result any, args ...any) error {
	return v.invoke(c, args, func(b []byte) ([]byte, error) {
		if result == nil {
			return b, nil
		}
		return decodeFront(b, result, c)
	})
}

// invoke sends the program's changes of registered memory, then makes a call. parseResults decodes
// the results from the start of b and returns the rest, before later frames are processed.
func (v *verb) invoke(c *Client, args []any, parseResults func(b []byte) (rest []byte, err error)) error {
	done := make(chan error, 1)
	id, err := c.calls.Begin(maxCalls, func(body []byte, ok bool) {
		if ok {
			done <- v.parseReply(c, body, parseResults)
		} else {
			done <- v.opError(c.Err())
		}
	})
	switch {
	case errors.Is(err, control.ErrClosed):
		return v.opError(c.Err())
	case err != nil:
		return v.opError(fmt.Errorf("%w: %w", verbs.ErrNoMemory, err))
	}
	framesReceived := c.memory.sendChanges()
	body := binary.AppendUvarint(make([]byte, 0, 128), framesReceived) // acknowledges the agent's memory frames
	body = append(body, byte(v.number))
	for i, p := range v.in {
		body = p.append(body, reflect.ValueOf(args[i]), c)
	}
	if len(body) > maxFrameLen {
		c.calls.Forget(id)
		return v.opError(fmt.Errorf("%w: a call of %d bytes exceeds the limit of %d", verbs.ErrNoMemory, len(body), maxFrameLen))
	}
	c.out(control.Frame{Kind: control.Call, Num: id, Body: body})
	return <-done
}

// opError returns the error of a call that was not executed.
func (v *verb) opError(err error) error { return &verbs.OpError{Op: v.name, Err: err} }

// parseReply decodes a reply: the failure, and with parseResults the results, which a failed call
// may have too.
func (v *verb) parseReply(c *Client, body []byte, parseResults func(b []byte) (rest []byte, err error)) error {
	var f failure
	rest, err := decodeFront(body, &f, c)
	if err == nil && (len(rest) > 0 || !f.Failed) {
		if rest, err = parseResults(rest); err == nil && len(rest) > 0 {
			err = fmt.Errorf("%w: %d trailing bytes", errBadMessage, len(rest))
		}
	}
	if err != nil {
		return v.opError(fmt.Errorf("reply of the agent: %w", err))
	}
	return f.err()
}

// handleOf returns the handle of an object, or foreign if it is not an object of this client.
func (c *Client) handleOf(object any) handle {
	if r, ok := object.(interface{ refOf() *ref }); ok && r.refOf().c == c {
		return r.refOf().h
	}
	return foreign
}

// objectOf returns the object of a handle, as a value of the interface type t; nil if not known.
func (c *Client) objectOf(h handle, t reflect.Type) (reflect.Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.objects[h]; o != nil && reflect.TypeOf(o).Implements(t) {
		return reflect.ValueOf(o), nil
	}
	return reflect.Zero(t), nil
}

// getOrCreate returns the client's object of a handle. The first call for a handle gets the object
// from newObject.
func getOrCreate[T any](c *Client, h handle, newObject func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok := c.objects[h].(T); ok {
		return o
	}
	o := newObject()
	c.objects[h] = o
	return o
}

// recordClosed records that an object was closed. It keeps the last keptObjects closed objects, to
// which later replies may refer.
func (c *Client) recordClosed(h handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[h] == nil {
		return
	}
	for c.closed = append(c.closed, h); len(c.closed) > keptObjects; c.closed = c.closed[1:] {
		delete(c.objects, c.closed[0])
	}
}

// IP returns the IP address of an agent at HOST:PORT; the zero address if it is unknown.
func IP(address string) netip.Addr {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}
