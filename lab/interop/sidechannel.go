package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// done is what the client says when it has the server's endpoints.
const done = "done\x00"

// retryPause is how long to wait for a peer that is still starting.
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

// accept waits for one connection on addr. ready is called when a peer may
// connect.
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

// exchangeAsClient says mine, hears as many endpoints of the server, and
// acknowledges them.
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

// exchangeAsServer hears as many endpoints of the client as mine has, has them
// connected, and only then says mine: whoever knows our queue pairs may send
// to them.
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

// writeEndpoints writes all lines in one write: the programs with one queue
// pair read once and take what they get for the line.
func writeEndpoints(w io.Writer, endpoints []Endpoint) error {
	lines := make([]byte, 0, len(endpoints)*EndpointLen)
	for _, e := range endpoints {
		lines = e.Append(lines)
	}
	_, err := w.Write(lines)
	return err
}

// readEndpoints reads n lines.
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
