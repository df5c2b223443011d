package perflab

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/perf/record"
	"github.com/fabrictest/fabrictest/verbs"
)

// DefaultPort is the TCP port of servers, which is that of perftest.
const DefaultPort = "18515"

// Endpoint is the device of one end of a benchmark between two hosts, a client and a server. A TCP
// connection carries what the programs exchange besides the traffic.
type Endpoint struct {
	Device verbs.Context
	// Port is the port of the device, and GIDIndex its GID; port 0 means 1.
	Port, GIDIndex uint8
}

// hello is the first message of a client.
type hello struct {
	Version   int
	Transport string
	Benchmark perf.Benchmark
}

// helloVersion is the version of the protocol between client and server.
const helloVersion = 1

// ListenAndServe waits for a client at a TCP address, and runs the server side of its benchmark.
func (e Endpoint) ListenAndServe(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return cli.Errorf("--listen: %w", err)
	}
	return e.Serve(ctx, l)
}

// Serve waits for a client on a listener, runs the server side of its benchmark, and returns.
func (e Endpoint) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	tcp, err := l.Accept()
	if err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("wait for a client: %w", err))
	}
	x := newTCPExchange(ctx, tcp)
	defer x.Close()
	text, err := x.receive()
	if err != nil {
		return fmt.Errorf("client %v: %w", tcp.RemoteAddr(), err)
	}
	var h hello
	if err = json.Unmarshal(text, &h); err == nil && h.Version != helloVersion {
		err = fmt.Errorf("version %d of the benchmark protocol: this server has version %d; run the same program on both hosts", h.Version, helloVersion)
	}
	b := &Benchmark{Benchmark: h.Benchmark, Transport: h.Transport}
	if err == nil {
		err = b.check()
	}
	if err == nil {
		err = e.runPrograms(ctx, x, perf.Server, b, func(int, perf.Figures) {})
	}
	return x.fail(err)
}

// Run runs the client side of a benchmark with the server at an address, HOST or HOST:PORT.
func (e Endpoint) Run(ctx context.Context, b *Benchmark, server string) (*perf.Report, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, DefaultPort)
	}
	tcp, err := new(net.Dialer).DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, fmt.Errorf("%w: start the server first, with the same command without a host", err)
	}
	x := newTCPExchange(ctx, tcp)
	defer x.Close()
	service, err := e.service(b.Transport)
	if err != nil {
		return nil, x.fail(err)
	}
	info := e.Device.Info()
	r := b.newReport(service)
	r.Run.Device = record.Device{Name: info.Name, Driver: info.Provider, Link: "device"}
	text, err := json.Marshal(hello{helloVersion, b.Transport, b.Benchmark})
	if err == nil {
		err = x.send(text)
	}
	if err == nil {
		err = e.runPrograms(ctx, x, perf.Client, b, func(size int, f perf.Figures) { r.Add(size, f) })
	}
	return r, x.fail(err)
}

// service returns the transport service that name selects on the device: rc, uc, ud, xrc or rd. The
// empty name selects rc, or ud if the device has no connections.
func (e Endpoint) service(name string) (perf.Service, error) {
	attr, err := e.Device.QueryDevice()
	if err != nil {
		return 0, err
	}
	return perf.ServiceOf(e.Device.Info().Transport, attr.Caps, name)
}

// runPrograms runs one side of the programs of a benchmark, and calls add for the size and the
// figures of each.
func (e Endpoint) runPrograms(ctx context.Context, x *tcpExchange, role perf.Role, b *Benchmark, add func(int, perf.Figures)) error {
	service, err := e.service(b.Transport)
	if err != nil {
		return err
	}
	programs, sizes, err := b.programs()
	if err != nil {
		return err
	}
	local, err := netip.ParseAddrPort(x.LocalAddr().String())
	if err != nil {
		return err
	}
	side := &perf.Side{Role: role, Device: e.Device, Service: service, Exchange: x, Addr: local.Addr().Unmap(), Port: e.Port, GIDIndex: e.GIDIndex}
	for i, p := range programs {
		f, err := p.Run(ctx, side)
		if err != nil {
			return err
		}
		if add(sizes[i], f); b.Progress != nil {
			b.Progress(p.String(), float64(i+1)/float64(len(programs)))
		}
	}
	_, err = x.Swap(ctx, nil) // wait for the other side, and return its error if it failed
	return err
}

// tcpExchange is the perf.Exchange over a TCP connection. A message is its length, a byte that is
// 1 if it is the error of the other side, and its data.
type tcpExchange struct {
	net.Conn
	stop   func() bool
	failed bool // the other side has failed
}

// maxMessage bounds the messages of a tcpExchange.
const maxMessage = 64 << 20

// newTCPExchange returns an exchange over a connection, which is closed if ctx ends.
func newTCPExchange(ctx context.Context, c net.Conn) *tcpExchange {
	return &tcpExchange{Conn: c, stop: context.AfterFunc(ctx, func() { c.Close() })}
}

// Close closes the connection.
func (x *tcpExchange) Close() error {
	x.stop()
	return x.Conn.Close()
}

// Swap implements perf.Exchange.
func (x *tcpExchange) Swap(ctx context.Context, mine []byte) ([]byte, error) {
	err := x.send(mine)
	var theirs []byte
	if err == nil {
		theirs, err = x.receive()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return theirs, err
}

// fail sends an error to the other side, unless it is nil or comes from there, and returns it.
func (x *tcpExchange) fail(err error) error {
	if err != nil && !x.failed {
		_ = x.write([]byte(err.Error()), 1) // the other side may be gone
	}
	return err
}

// send sends a message.
func (x *tcpExchange) send(message []byte) error { return x.write(message, 0) }

// write sends a message, or an error if flag is 1.
func (x *tcpExchange) write(message []byte, flag byte) error {
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), flag)
	_, err := x.Conn.Write(append(b, message...))
	return err
}

// receive returns the next message of the other side. If that is an error, receive returns it.
func (x *tcpExchange) receive() ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(x.Conn, head[:]); err != nil {
		return nil, fmt.Errorf("the other side has ended: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage || head[4] > 1 {
		return nil, fmt.Errorf("a message of %d bytes: the other side is no fabrictest", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(x.Conn, b); err != nil {
		return nil, fmt.Errorf("the other side has ended: %w", err)
	}
	if head[4] == 1 {
		x.failed = true
		return nil, fmt.Errorf("the other side has failed: %s", b)
	}
	return b, nil
}
