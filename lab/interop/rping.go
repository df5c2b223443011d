package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

// IDs of the work requests of an rpingConn.
const (
	wrSend = iota + 1
	wrRead
	wrWrite
	wrRecv // of the first receive slot; those of the others follow
)

// recvSlots is how many messages the message buffer holds behind the one to send.
const recvSlots = 2

// rpingConn is one end of a connection of rping.
type rpingConn struct {
	rcConn
	source, sink, messages       []byte
	sourceMR, sinkMR, messagesMR verbs.MR

	sending      int   // messages not yet completed
	slots        []int // receive slots with messages that recv has not returned
	disconnected bool  // by the peer
}

// newRPingConn creates a queue pair and the buffers for pings of the given size.
func newRPingConn(dev verbs.Context, size int, events bool) (*rpingConn, error) {
	c := &rpingConn{source: make([]byte, size), sink: make([]byte, size), messages: make([]byte, (1+recvSlots)*BufferInfoLen)}
	const sendDepth, cqDepth = 4, 16 // more than enough: one message and one RDMA request are outstanding
	c.resources = newResources(dev, cqDepth, events)
	c.sourceMR = c.regMR(c.source, verbs.AccessRemoteRead)
	c.sinkMR = c.regMR(c.sink, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	c.messagesMR = c.regMR(c.messages, verbs.AccessLocalWrite)
	c.createQP(verbs.QPCaps{MaxSendWR: sendDepth, MaxRecvWR: recvSlots}, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	for slot := range recvSlots {
		c.do(func() error { return c.postRecv(slot) })
	}
	return c, c.finish()
}

// postRecv posts a receive into a slot of the message buffer, after the message to send.
func (c *rpingConn) postRecv(slot int) error {
	_, err := c.qp.PostRecv([]verbs.RecvWR{{
		WRID: wrRecv + uint64(slot),
		SGL:  []verbs.SGE{verbs.SGEOf(c.messagesMR, (1+slot)*BufferInfoLen, BufferInfoLen)},
	}})
	return err
}

// clientPing offers the server memory with the data of ping number n to read, and then memory to
// write it back to, and checks the data that the server has written.
func (c *rpingConn) clientPing(ctx context.Context, n int) error {
	RPingText(c.source, n)
	clear(c.sink)
	for _, step := range []struct {
		what string
		mr   verbs.MR
	}{{"read", c.sourceMR}, {"write", c.sinkMR}} {
		if err := c.send(ctx, BufferInfo{Addr: step.mr.Addr(), RKey: step.mr.RKey(), Size: uint32(step.mr.Len())}); err != nil {
			return fmt.Errorf("offering memory to %s: %w", step.what, err)
		}
		if _, err := c.recv(ctx); err != nil {
			return fmt.Errorf("waiting for the server's %s: %w", step.what, err)
		}
	}
	return checkPing(c.sink, n)
}

// serverPing answers ping number n: it reads the client's data, checks it and writes it back.
func (c *rpingConn) serverPing(ctx context.Context, n int) error {
	clear(c.sink)
	from, err := c.recv(ctx)
	if err != nil {
		return fmt.Errorf("waiting for an offer to read: %w", err)
	}
	if int(from.Size) != len(c.sink) {
		return fmt.Errorf("client offers %d bytes, want %d: start rping with -S %d", from.Size, len(c.sink), len(c.sink))
	}
	if err := c.rdma(ctx, wrRead, verbs.OpRDMARead, c.sinkMR, from); err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	if err := checkPing(c.sink, n); err != nil {
		return err
	}
	if err := c.send(ctx, BufferInfo{}); err != nil { // the client waits for any message
		return err
	}
	to, err := c.recv(ctx)
	if err != nil {
		return fmt.Errorf("waiting for an offer to write: %w", err)
	}
	if err := c.rdma(ctx, wrWrite, verbs.OpRDMAWrite, c.sinkMR, to); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return c.send(ctx, BufferInfo{})
}

// send posts a message after the previous one has completed: they share a buffer.
func (c *rpingConn) send(ctx context.Context, m BufferInfo) error {
	if err := c.drain(ctx); err != nil {
		return err
	}
	m.Append(c.messages[:0])
	_, err := c.qp.PostSend([]verbs.SendWR{{
		WRID: wrSend, Opcode: verbs.OpSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{verbs.SGEOf(c.messagesMR, 0, BufferInfoLen)},
	}})
	c.sending++
	return err
}

// drain waits until every message sent has completed.
func (c *rpingConn) drain(ctx context.Context) error {
	for c.sending > 0 {
		if err := c.waitFor(ctx, wrSend); err != nil {
			return err
		}
	}
	return nil
}

// rdma posts a read into mr or a write from it and waits for its completion.
func (c *rpingConn) rdma(ctx context.Context, id uint64, op verbs.WROpcode, mr verbs.MR, peer BufferInfo) error {
	_, err := c.qp.PostSend([]verbs.SendWR{{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled,
		SGL:    []verbs.SGE{verbs.SGEOf(mr, 0, min(mr.Len(), int(peer.Size)))},
		Remote: verbs.Remote{Addr: peer.Addr, RKey: peer.RKey},
	}})
	if err != nil {
		return err
	}
	return c.waitFor(ctx, id)
}

// recv waits for the peer's next message.
func (c *rpingConn) recv(ctx context.Context) (m BufferInfo, err error) {
	for len(c.slots) == 0 {
		if err := c.waitFor(ctx, wrRecv); err != nil {
			return m, err
		}
	}
	slot := c.slots[0]
	c.slots = c.slots[1:]
	if err := m.Parse(c.messages[(1+slot)*BufferInfoLen:][:BufferInfoLen]); err != nil {
		return m, err
	}
	return m, c.postRecv(slot)
}

// waitFor handles completions until the work request with the ID want has completed. Earlier sends
// and early messages may complete before. If want is wrRecv, a disconnect by the peer is an error.
func (c *rpingConn) waitFor(ctx context.Context, want uint64) error {
	completed := false
	handle := func(wc *verbs.WC) error {
		id := min(wc.WRID, wrRecv) // receives have the IDs from wrRecv on, by slot
		completed = completed || id == want
		return c.handle(wc, id)
	}
	err := c.comp.handle(ctx, handle, func() bool { return completed || c.disconnected && want == wrRecv })
	if err == nil && !completed {
		return errors.New("the connection has ended")
	}
	return err
}

// handle checks one completion, of the work request id. Only posted receives may be flushed, which
// means that the peer has disconnected.
func (c *rpingConn) handle(wc *verbs.WC, id uint64) error {
	opcodes := [...]verbs.WCOpcode{wrSend: verbs.WCOpSend, wrRead: verbs.WCOpRDMARead, wrWrite: verbs.WCOpRDMAWrite, wrRecv: verbs.WCOpRecv}
	switch {
	case id == wrRecv && wc.Status == verbs.WCWRFlushErr:
		c.disconnected = true
	case wc.Status != verbs.WCSuccess:
		return completionError(wc)
	case id == 0 || wc.Opcode != opcodes[id]: // no request has the ID 0
		return fmt.Errorf("unexpected completion %+v", *wc)
	case id == wrSend:
		c.sending--
	case id == wrRecv && wc.ByteLen != BufferInfoLen:
		return fmt.Errorf("%w: %d bytes", ErrBufferInfo, wc.ByteLen)
	case id == wrRecv:
		c.slots = append(c.slots, int(wc.WRID-wrRecv))
	}
	return nil
}

// BufferInfoLen is the size of a BufferInfo message.
const BufferInfoLen = 16

// Sizes that rping accepts for its data (-S).
const (
	MinPingSize = 23
	MaxPingSize = 65535
)

// ErrBufferInfo is returned for a message that is not a BufferInfo.
var ErrBufferInfo = errors.New("not a buffer advertisement")

// BufferInfo is the message of rping: the client advertises memory that the server may read or
// write. The server replies with one whose contents are ignored.
type BufferInfo struct {
	Addr uint64
	RKey verbs.RKey
	Size uint32
}

// Append appends m in network byte order.
func (m BufferInfo) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Addr)
	b = binary.BigEndian.AppendUint32(b, uint32(m.RKey))
	return binary.BigEndian.AppendUint32(b, m.Size)
}

// Parse parses a whole message of rping: address, RKey and size, in network byte order.
func (m *BufferInfo) Parse(b []byte) error {
	if len(b) != BufferInfoLen {
		return fmt.Errorf("%w: %d bytes, want %d", ErrBufferInfo, len(b), BufferInfoLen)
	}
	m.Addr = binary.BigEndian.Uint64(b)
	m.RKey = verbs.RKey(binary.BigEndian.Uint32(b[8:]))
	m.Size = binary.BigEndian.Uint32(b[12:])
	return nil
}

// RPingText fills b with the data of rping's ping number n: a heading, then the characters from A
// to z in turn, beginning one character later with each ping, and a NUL.
func RPingText(b []byte, n int) {
	const first, count = 'A', 'z' - 'A' + 1
	head := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for i := head; i < len(b); i++ {
		b[i] = byte(first + (n+i-head)%count)
	}
	b[len(b)-1] = 0
}

// checkPing returns an error if got is not the data of ping number n.
func checkPing(got []byte, n int) error {
	want := make([]byte, len(got))
	RPingText(want, n)
	if bytes.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("ping %d: %w", n, check(got, func(i int) byte { return want[i] }))
}

// rpingRun is one end of rping with all its connections.
type rpingRun struct {
	CMProgram
	dev verbs.Context
	cm  verbs.CM
}

// run runs our end of rping. The client checks that the server writes back the client's data; the
// server checks that this data is rping's. A ping has two messages in each direction; the result
// counts those of all pings, even after an error.
func (r *rpingRun) run(ctx context.Context) (_ Result, err error) {
	if r.Role == Client {
		err = r.runClients(ctx)
	} else {
		err = r.runServer(ctx)
	}
	pings := r.Count * r.Connections
	return Result{Sent: 2 * pings, Received: 2 * pings}, err
}

func (r *rpingRun) newConn() (*rpingConn, error) { return newRPingConn(r.dev, r.Size, r.Events) }

// runClients runs a client for each connection, all at once. The clients connect one by one, since
// rping's server remembers one request only: a second request that arrives before the server has
// accepted the first replaces the first, which is never answered.
func (r *rpingRun) runClients(ctx context.Context) error {
	return r.runAll(func() (func() error, error) {
		c, err := connect(ctx, r.cm, r.Addr, r.newConn)
		return func() error { return r.runPings(ctx, c, c.clientPing, c.conn.Disconnect) }, err
	})
}

// runServer accepts the requests one by one, and serves their connections at the same time, as
// rping does with -P.
func (r *rpingRun) runServer(ctx context.Context) error {
	listener, err := listen(r.cm, r.Addr, verbs.PortSpaceTCP, r.Connections, r.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	return r.runAll(func() (func() error, error) {
		request, err := nextRequest(ctx, listener)
		return func() error { return r.serve(ctx, request) }, err
	})
}

// runAll calls start for each connection, up to the first error, and runs the functions that
// start returns at the same time.
func (r *rpingRun) runAll(start func() (run func() error, err error)) error {
	errs := make([]error, r.Connections)
	var running sync.WaitGroup
	for i := range errs {
		run, err := start()
		if err != nil {
			errs[i] = err
			break
		}
		running.Go(func() { errs[i] = run() })
	}
	running.Wait()
	return errors.Join(errs...)
}

// serve accepts a request and answers the client until it disconnects.
func (r *rpingRun) serve(ctx context.Context, request verbs.ConnRequest) error {
	asked := request.Param()
	if asked.InitiatorDepth < 1 || asked.ResponderResources < 1 {
		return errors.Join(fmt.Errorf("%v asks for %+v: rping reads, and is read from", request.Remote(), asked), request.Reject(nil))
	}
	c, err := acceptRequest(request, r.newConn)
	if err != nil {
		return err
	}
	return r.runPings(ctx, c, c.serverPing, func() error { return awaitDisconnect(ctx, c.conn) })
}

// runPings calls ping with the number of each ping, ends the connection by disconnect and closes c.
func (r *rpingRun) runPings(ctx context.Context, c *rpingConn, ping func(ctx context.Context, n int) error, disconnect func() error) error {
	defer c.close()
	for n := range r.Count {
		if err := ping(ctx, n); err != nil {
			return errors.Join(fmt.Errorf("ping %d: %w", n, err), c.conn.Disconnect())
		}
	}
	if err := errors.Join(c.drain(ctx), disconnect()); err != nil {
		return fmt.Errorf("after the last ping: %w", err)
	}
	return c.close()
}
