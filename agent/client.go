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
	"sync/atomic"

	"github.com/fabrictest/fabrictest/verbs"
)

// Client is the caller's end of a connection to an agent. It is a verbs.Provider of
// the devices of the agent's host.
type Client struct {
	out    sender
	agent  string // the program at the other end
	memory *programMemories
	ended  chan struct{} // closed when the connection is lost

	mu      sync.Mutex
	reason  error // of the loss
	last    uint64
	replies uint64
	waiting map[uint64]func(body []byte)
	objects map[handle]any
	gone    []handle // closed, oldest first

	shut func() // ends the connection
}

var _ verbs.Provider = (*Client)(nil)

// Dial connects to the agent at a TCP address.
func Dial(ctx context.Context, addr string, key Key) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("reach the agent: %w", err)
	}
	c, err := NewClient(ctx, conn, key, Timing{})
	if err != nil {
		return nil, fmt.Errorf("agent at %s: %w", addr, err)
	}
	return c, nil
}

// NewClient makes itself known to the agent at the other end of a connection, which
// belongs to the client from then on.
func NewClient(ctx context.Context, raw net.Conn, key Key, timing Timing) (*Client, error) {
	c, err := greet(ctx, raw, key, timing.filled())
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

func greet(ctx context.Context, raw net.Conn, key Key, timing Timing) (*Client, error) {
	config, err := secured(key, roleCaller, roleAgent)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, timing.Handshake)
	defer stop()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("find out who it is: %w", err)
	}
	l := newLink(conn, timing)
	them, err := l.hear(timing.Handshake, "this program", "the agent")
	switch {
	case err != nil && refusedKey(err):
		return nil, fmt.Errorf("%w: it refused ours (%w)", ErrKey, err)
	case err != nil:
		return nil, err
	}
	c := newClient(l)
	c.agent = them.Program
	c.shut = func() { l.bye(errors.New("the caller has ended")) }
	l.send(ours("", timing.Silence).frame())
	go l.write()
	go func() { c.fail(l.read(c.receive)) }()
	return c, nil
}

func newClient(out sender) *Client {
	c := &Client{
		out: out, ended: make(chan struct{}),
		waiting: make(map[uint64]func([]byte)), objects: make(map[handle]any),
	}
	c.memory = newProgramMemories(func(frame []byte) { c.out.send(frame) })
	return c
}

// Name implements verbs.Provider.
func (c *Client) Name() string { return "agent" }

// Agent is what the agent says that it is.
func (c *Client) Agent() string { return c.agent }

// Identity says what the agent's host is, and what it has.
func (c *Client) Identity() (Identity, error) { return callIdentity.call(c, none{}) }

// Devices implements verbs.Provider.
func (c *Client) Devices() ([]verbs.DeviceInfo, error) {
	id, err := c.Identity()
	infos := make([]verbs.DeviceInfo, 0, len(id.Devices))
	for _, d := range id.Devices {
		infos = append(infos, d.Info)
	}
	return infos, err
}

// Open implements verbs.Provider. A device that another caller has is verbs.ErrBusy.
func (c *Client) Open(device string) (verbs.Context, error) {
	var dev *remoteContext
	_, err := callOpen.callThen(c, deviceNamed{device}, func(out *opened) {
		dev = &remoteContext{ref: ref{c, out.Handle}, info: out.Info, regions: make(map[*remoteMR]bool)}
	})
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// SetLink takes a device's cable out or puts it in, where the host can: see
// [Host.SetLink].
func (c *Client) SetLink(device string, up bool) error {
	_, err := callSetLink.call(c, linkTo{device, up})
	return err
}

// SetAddress gives a device an address or takes it away, where the host can: see
// [Host.SetAddress].
func (c *Client) SetAddress(device string, addr netip.Prefix, present bool) error {
	_, err := callSetAddress.call(c, addressTo{device, addr, present})
	return err
}

// Restart has a device be as new, where the host can: see [Host.Restart]. What we have
// open of it is closed.
func (c *Client) Restart(device string) error {
	_, err := callRestart.call(c, deviceNamed{device})
	return err
}

// Close ends the connection. The agent closes what was opened over it.
func (c *Client) Close() error {
	c.fail(errors.New("it was closed by this program"))
	return nil
}

// Replies is how many calls the agent has answered.
func (c *Client) Replies() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replies
}

// Lost is closed when the connection has ended; Err says why.
func (c *Client) Lost() <-chan struct{} { return c.ended }

// Err says why the connection has ended: an error that wraps ErrLost, or nil while it
// has not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// fail ends the connection and all calls.
func (c *Client) fail(reason error) {
	c.mu.Lock()
	first := c.reason == nil
	if first {
		c.reason = &lostError{reason}
		c.waiting = nil
		close(c.ended)
	}
	c.mu.Unlock()
	if first && c.shut != nil {
		c.shut()
	}
}

// receive takes a frame of the agent.
func (c *Client) receive(kind byte, body []byte) error {
	switch kind {
	case frameMemory:
		return c.memory.take(body)
	case frameReply:
		var id uint64
		body, err := parseUvarint(body, &id)
		if err != nil {
			return err
		}
		c.mu.Lock()
		finish := c.waiting[id]
		delete(c.waiting, id)
		c.replies++
		c.mu.Unlock()
		if finish == nil {
			return fmt.Errorf("%w: an answer to call %d, which nobody made", errBadMessage, id)
		}
		finish(body)
		return nil
	default:
		return fmt.Errorf("%w: a frame of kind %d", errBadMessage, kind)
	}
}

// call makes a call and returns what came of it.
func (v *verb[In, Out]) call(c *Client, in In) (Out, error) {
	return v.callThen(c, in, func(*Out) {})
}

// callThen makes a call. What has to be done with its results before anything that
// comes after them is looked at, is done by then.
func (v *verb[In, Out]) callThen(c *Client, in In, then func(*Out)) (out Out, err error) {
	done := make(chan struct{})
	var settled atomic.Bool // by the answer, or by the loss of the connection
	id, err := c.expect(func(body []byte) {
		if !settled.CompareAndSwap(false, true) {
			return
		}
		defer close(done)
		if err = v.results(c, body, &out); err == nil {
			then(&out)
		}
	})
	if err != nil {
		return out, &verbs.OpError{Op: v.name, Err: err}
	}
	got := c.memory.tell()
	frame := binary.AppendUvarint(binary.AppendUvarint(newFrame(frameCall, 128), got), id)
	frame = encode(append(frame, byte(v.number)), &in, c)
	if tooLong(frame) {
		c.forget(id)
		return out, &verbs.OpError{Op: v.name, Err: fmt.Errorf("%w: a call of %d bytes, and an agent takes at most %d", verbs.ErrNoMemory, len(frame), maxFrameLen)}
	}
	c.out.send(frame)
	select {
	case <-done:
		return out, err
	case <-c.ended:
	}
	if !settled.CompareAndSwap(false, true) { // the answer came just before
		<-done
		return out, err
	}
	return out, &verbs.OpError{Op: v.name, Err: c.Err()}
}

// results reads an answer: the failure, and what came of the call all the same.
func (v *verb[In, Out]) results(c *Client, body []byte, out *Out) error {
	var f failure
	rest, err := decodeFront(body, &f, c)
	if err == nil && (len(rest) > 0 || !f.Failed) {
		err = decode(rest, out, c)
	}
	if err != nil {
		return &verbs.OpError{Op: v.name, Err: fmt.Errorf("the agent's answer: %w", err)}
	}
	return f.err()
}

// expect gives a call its number, and has finish called with the answer.
func (c *Client) expect(finish func([]byte)) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.reason != nil:
		return 0, c.reason
	case len(c.waiting) >= maxCalls:
		return 0, fmt.Errorf("%w: %d calls are under way", verbs.ErrNoMemory, maxCalls)
	}
	c.last++
	c.waiting[c.last] = finish
	return c.last, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// handleOf implements objects.
func (c *Client) handleOf(object any) handle {
	if r, ok := object.(interface{ refOf() *ref }); ok && r.refOf().c == c {
		return r.refOf().h
	}
	return foreign
}

// objectOf implements objects. What we never had, or do not remember, is nil.
func (c *Client) objectOf(h handle, t reflect.Type) (reflect.Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.objects[h]; o != nil && reflect.TypeOf(o).Implements(t) {
		return reflect.ValueOf(o), nil
	}
	return reflect.Zero(t), nil
}

// known returns the object of a handle: the one that there is, or a new one.
func known[T any](c *Client, h handle, fresh func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok := c.objects[h].(T); ok {
		return o
	}
	o := fresh()
	c.objects[h] = o
	return o
}

// closed notes that an object is, and forgets those that have been for long.
func (c *Client) closed(h handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[h] == nil {
		return
	}
	for c.gone = append(c.gone, h); len(c.gone) > keptObjects; c.gone = c.gone[1:] {
		delete(c.objects, c.gone[0])
	}
}
