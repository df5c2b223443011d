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
		case errors.Is(err, context.DeadlineExceeded): // also before ctx.Err says so
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
		err = fmt.Errorf("nobody came: %w", context.Cause(ctx))
	}
	return conn, err
}

// exchangeAsClient sends mine, and receives and acknowledges as many endpoints of the server.
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

// exchangeAsServer receives as many endpoints of the client as mine has, calls connect with them,
// and then sends mine: the client may send to our queue pairs when it knows them.
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
	word := make([]byte, len(done))
	if _, err := io.ReadFull(conn, word); err != nil {
		return fmt.Errorf("waiting for the client's %q: %w", done, err)
	}
	if string(word) != done {
		return fmt.Errorf("client said %q, want %q", word, done)
	}
	return nil
}

// writeEndpoints writes all lines in one write, because programs with one queue pair call read once.
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

// EndpointLen is the size of an Endpoint on the side channel: 51 characters and
// the NUL that ends a C string.
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

// Append appends the line of e with its NUL.
func (e Endpoint) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%06x:%06x:", e.LID, uint32(e.QPN), e.PSN)
	b = hex.AppendEncode(b, e.GID[:])
	return append(b, 0)
}

// Parse parses the line at the start of b and returns the bytes after it. Unlike the programs, it
// requires the exact form.
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
