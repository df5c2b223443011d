package interop

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// count is the number of messages, or of pings.
func (m *Matrix) count(c Case) int {
	switch c.Tool {
	case RPing, UDAddy, UCMatose:
		return max(m.Iters/10, 1)
	case RDMA:
		return 1
	default:
		return m.Iters
	}
}

// serverAddr is where the server of a case is.
func (m *Matrix) serverAddr(c Case, port uint16) netip.AddrPort {
	if c.Role == Server {
		return netip.AddrPortFrom(m.localAddr(c.Family), port)
	}
	return netip.AddrPortFrom(m.guestAddr(c.Family), port)
}

func (m *Matrix) pingPong(c Case, port uint16, ready chan struct{}) PingPong {
	p := PingPong{
		Tool: c.Tool, Role: c.Role, Local: m.localAddr(c.Family), Size: c.Size, Iters: m.count(c), QPs: c.qps(),
		MTU: mtu, Events: c.Variant == events,
		// With -c the only byte of the smallest message would be a zero.
		Check: c.Size > 1,
		Ready: func() { close(ready) },
		// The programs listen on IPv4 only, whatever the fabric runs over.
		SideChannel: netip.AddrPortFrom(m.Guest.IPv4, port),
	}
	if c.Role == Server {
		p.SideChannel = netip.AddrPortFrom(m.IPv4, port)
	}
	return p
}

func (m *Matrix) ping(c Case, port uint16, ready chan struct{}) Ping {
	return Ping{
		Role: c.Role, Addr: m.serverAddr(c, port), Size: c.Size, Count: m.count(c), Connections: c.connections(),
		Events: c.Variant == events, Ready: func() { close(ready) },
	}
}

func (m *Matrix) datagrams(c Case, ready chan struct{}) Datagrams {
	return Datagrams{
		Role: c.Role, Addr: m.serverAddr(c, DatagramPort), Local: m.localAddr(c.Family), Size: c.Size, Count: m.count(c),
		Events: c.Variant == events, Ready: func() { close(ready) },
	}
}

func (m *Matrix) volley(c Case, port uint16, ready chan struct{}) Volley {
	v := Volley{
		Role: c.Role, Addr: m.serverAddr(c, port), Size: c.Size, Count: m.count(c), Connections: c.connections(),
		Events: c.Variant == events, Ready: func() { close(ready) },
	}
	if c.Protocol == conformance.IWARP {
		v.Pause = replyTaken
	}
	return v
}

// replyTaken is more than siw in an emulated guest needs to take the reply to its
// request; a server that speaks before that is refused.
const replyTaken = 500 * time.Millisecond

func (m *Matrix) exchange(c Case, port uint16, ready chan struct{}) Exchange {
	return Exchange{Role: c.Role, Addr: m.serverAddr(c, port), Events: c.Variant == events, Ready: func() { close(ready) }}
}

// program is the name of the guest's executable in a case.
func program(c Case) string {
	switch {
	case c.Tool == RPing || c.Tool == UDAddy || c.Tool == UCMatose:
		return string(c.Tool)
	case c.Tool == RDMA && c.Role == Client:
		return "rdma_server"
	case c.Tool == RDMA:
		return "rdma_client"
	default:
		return "ibv_" + string(c.Tool) + "_pingpong"
	}
}

// pingPongCommand is what the guest runs for its end of p.
func (m *Matrix) pingPongCommand(c Case, p PingPong) string {
	args := []string{m.guarded(), program(c), "-d rxe0", fmt.Sprintf("-g %d -p %d -s %d -n %d", m.gids[c.Family], p.SideChannel.Port(), p.Size, p.Iters)}
	if c.Tool != UD {
		args = append(args, fmt.Sprintf("-m %v", p.MTU))
	}
	if c.Tool == SRQ {
		args = append(args, fmt.Sprintf("-q %d", p.QPs))
	}
	if p.Events {
		args = append(args, "-e")
	}
	if p.Check {
		args = append(args, "-c")
	}
	if c.Role == Server {
		args = append(args, p.SideChannel.Addr().String())
	}
	return strings.Join(args, " ")
}

// pingCommand is what the guest runs for its end of p. What rping says of the
// connection is kept from running into what it prints of the data.
func (m *Matrix) pingCommand(c Case, p Ping) string {
	return "cd ${TMPDIR:-/tmp}; " + m.pingScript(c, p)
}

func (m *Matrix) pingScript(c Case, p Ping) string {
	rping := func(role, said string) string {
		return fmt.Sprintf("%s rping %s -a %v -p %d -S %d -C %d -v -V 2>%s", m.guarded(), role, p.Addr.Addr(), p.Addr.Port(), p.Size, p.Count, said)
	}
	const end = "; code=$?; cat said; exit $code"
	switch {
	case c.Role == Client && c.Variant == persistent:
		// Such a server never ends by itself: let it see all its clients leave. What the
		// one before it has said must be gone when it is first looked at, and the shell
		// that starts this one in the background may come to that later.
		return fmt.Sprintf(": >said; %s >/dev/null & while kill -0 $! && [ $(grep -c '%s' said) -lt %d ]; do usleep 20000; done; kill $!; wait; cat said",
			rping("-s -P", "said"), clientLeft, p.Connections)
	case c.Role == Client:
		return rping("-s", "said") + end
	case c.Variant == persistent:
		return rping("-c", "/dev/null") + " >data & " + rping("-c", "said") + "; code=$?; wait $! && cat data said && exit $code"
	default:
		return rping("-c", "said") + end
	}
}

// datagramsCommand is what the guest runs for its end of d.
func (m *Matrix) datagramsCommand(c Case, d Datagrams) string {
	side := "-b" // where to listen
	if c.Role == Server {
		side = "-s" // whom to ask
	}
	return fmt.Sprintf("%s udaddy %s %v -C %d -S %d", m.guarded(), side, d.Addr.Addr(), d.Count, d.Size)
}

// volleyCommand is what the guest runs for its end of v.
func (m *Matrix) volleyCommand(c Case, v Volley) string {
	side := "-b" // where to listen
	if c.Role == Server {
		side = "-s" // whom to connect to
	}
	return fmt.Sprintf("%s ucmatose %s %v -p %d -c %d -C %d -S %d", m.guarded(), side, v.Addr.Addr(), v.Addr.Port(), v.Connections, v.Count, v.Size)
}

// exchangeCommand is what the guest runs for its end of x.
func (m *Matrix) exchangeCommand(c Case, x Exchange) string {
	return fmt.Sprintf("%s %s -s %v -p %d", m.guarded(), program(c), x.Addr.Addr(), x.Addr.Port())
}

// clientLeft is what rping's server says when a connection has ended.
const clientLeft = "server DISCONNECT EVENT"

// guarded ends what would outlive its case.
func (m *Matrix) guarded() string {
	return fmt.Sprintf("timeout -s KILL %d", int(m.Timeout.Seconds())+1)
}

// judge says whether the guest's program, which printed output and returned
// code, is content. The programs report wrong data in words only.
func judge(c Case, count int, output string, code int) error {
	if code != 0 {
		return fmt.Errorf("the guest's %s exits with %d", program(c), code)
	}
	for _, complaint := range []string{"invalid data", "data mismatch", "error", "Failed", "Couldn't", "unable"} {
		if strings.Contains(output, complaint) {
			return fmt.Errorf("the guest's %s complains of %q", program(c), complaint)
		}
	}
	var wants []string
	switch {
	case c.Tool == UDAddy || c.Tool == UCMatose:
		wants = []string{"data transfers complete\n", "return status 0\n"}
	case c.Tool == RDMA:
		wants = []string{program(c) + ": end 0\n"}
	case c.Tool != RPing:
		wants = []string{fmt.Sprintf("%d iters in ", count)}
	case c.Variant == persistent && c.Role == Client:
		if n := strings.Count(output, clientLeft); n != c.connections() {
			return fmt.Errorf("the guest's rping saw %d of %d clients leave", n, c.connections())
		}
	default:
		text := make([]byte, c.Size)
		for n := range count {
			PingText(text, n)
			wants = append(wants, fmt.Sprintf("ping data: %s\n", text[:c.Size-1]))
		}
	}
	for _, want := range wants {
		if strings.Count(output, want) != c.prints() {
			return fmt.Errorf("the guest's %s should have printed %.60q %d times", program(c), want, c.prints())
		}
	}
	return nil
}

// prints is how many programs in the guest print what they saw.
func (c Case) prints() int {
	if c.Role == Server && c.Variant == persistent {
		return c.connections()
	}
	return 1
}
