package interop

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// count returns the number of messages or pings of a case: Iters, a tenth of it with programs that
// connect by rdma_cm, or 1 with those that send one message.
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

// pingPong returns our end of a case whose other end is an ibv_*_pingpong program. Our end closes
// ready when it listens.
func (m *Matrix) pingPong(c Case, port uint16, ready chan struct{}) PingPong {
	p := PingPong{
		Tool: c.Tool, Role: c.Role, Local: m.localAddr(c.Family), Size: c.Size, Iters: m.count(c), QPs: c.qps(),
		MTU: mtu, Events: c.Variant == events,
		// -c, the data check, proves nothing for one byte, which is 0, as in an unwritten buffer.
		Check: c.Size > 1,
		Ready: func() { close(ready) },
		// The programs listen on IPv4 only, whatever the family of the fabric.
		SideChannel: netip.AddrPortFrom(m.Guest.IPv4, port),
	}
	if c.Role == Server {
		p.SideChannel = netip.AddrPortFrom(m.IPv4, port)
	}
	return p
}

// cmProgram returns our end of a case whose other end is an rdma_cm program. Our end closes ready
// when it listens.
func (m *Matrix) cmProgram(c Case, port uint16, ready chan struct{}) CMProgram {
	p := CMProgram{
		Tool: c.Tool, Role: c.Role, Local: m.localAddr(c.Family), Size: c.Size, Count: m.count(c), Connections: c.connections(),
		Events: c.Variant == events, Ready: func() { close(ready) },
	}
	server := m.guestAddr(c.Family)
	if c.Role == Server {
		server = p.Local
	}
	if c.Tool == UDAddy {
		port = UDAddyPort // udaddy has no option for it
	}
	if c.Protocol == conformance.IWARP && c.Tool == UCMatose {
		p.SendDelay = siwSendDelay // siw rejects data that follows the MPA reply at once
	}
	p.Addr = netip.AddrPortFrom(server, port)
	return p
}

// siwSendDelay is more than siw in an emulated guest needs to process an MPA reply; it rejects
// data that arrives before.
const siwSendDelay = 500 * time.Millisecond

// connectsByCM reports whether the program of a case connects by rdma_cm.
func (c Case) connectsByCM() bool {
	return c.Tool == RPing || c.Tool == UDAddy || c.Tool == UCMatose || c.Tool == RDMA
}

// program returns the name of the guest's executable in a case. The role of a case is ours: the
// guest has the other.
func program(c Case) string {
	switch {
	case c.Tool == RDMA && c.Role == Client:
		return "rdma_server"
	case c.Tool == RDMA:
		return "rdma_client"
	case c.connectsByCM():
		return string(c.Tool)
	default:
		return "ibv_" + string(c.Tool) + "_pingpong"
	}
}

// pingPongCommand returns the command of the guest's end of p.
func (m *Matrix) pingPongCommand(c Case, p PingPong) string {
	args := []string{m.timeoutPrefix(), program(c), "-d rxe0", fmt.Sprintf("-g %d -p %d -s %d -n %d", m.gids[c.Family], p.SideChannel.Port(), p.Size, p.Iters)}
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
	if c.Role == Server { // the guest is the client
		args = append(args, p.SideChannel.Addr().String())
	}
	return strings.Join(args, " ")
}

// cmCommand returns the command of the guest's end of p. c.Role is our role.
func (m *Matrix) cmCommand(c Case, p CMProgram) string {
	side := "-b" // the address to listen on
	if c.Role == Server {
		side = "-s" // the address to connect to
	}
	addr, port := p.Addr.Addr(), p.Addr.Port()
	switch c.Tool {
	case RPing:
		return "cd ${TMPDIR:-/tmp}; " + m.rpingScript(c, p)
	case UDAddy:
		return fmt.Sprintf("%s udaddy %s %v -C %d -S %d", m.timeoutPrefix(), side, addr, p.Count, p.Size)
	case UCMatose:
		return fmt.Sprintf("%s ucmatose %s %v -p %d -c %d -C %d -S %d", m.timeoutPrefix(), side, addr, port, p.Connections, p.Count, p.Size)
	default: // rdma_client and rdma_server both take the server's address with -s
		return fmt.Sprintf("%s %s -s %v -p %d", m.timeoutPrefix(), program(c), addr, port)
	}
}

// rpingScript returns a shell script that runs rping, in the variant persistent as a server that
// serves several clients (-P), or as two clients at once. The script prints the data, and then the
// messages about the connection, which rping writes to a file with the name "said".
func (m *Matrix) rpingScript(c Case, p CMProgram) string {
	rping := func(role, stderrFile string) string {
		return fmt.Sprintf("%s rping %s -a %v -p %d -S %d -C %d -v -V 2>%s", m.timeoutPrefix(), role, p.Addr.Addr(), p.Addr.Port(), p.Size, p.Count, stderrFile)
	}
	const end = "; code=$?; cat said; exit $code"
	switch {
	case c.Role == Client && c.Variant == persistent:
		// A persistent server never exits, so the script kills it when all clients have
		// disconnected. It empties said first: the file of an earlier case may be there before the
		// server in the background has truncated it.
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

// clientLeft is the message of rping's server when a client has disconnected.
const clientLeft = "server DISCONNECT EVENT"

// timeoutPrefix returns the prefix of a command that kills it after the time of a case.
func (m *Matrix) timeoutPrefix() string {
	return fmt.Sprintf("timeout -s KILL %d", int(m.Timeout.Seconds())+1)
}

// checkOutput returns an error if the guest's program failed, by its output and exit code. The
// programs report wrong data only in their output.
func checkOutput(c Case, count int, output string, code int) error {
	if code != 0 {
		return fmt.Errorf("the guest's %s exits with %d", program(c), code)
	}
	for _, failure := range []string{"invalid data", "data mismatch", "error", "Failed", "Couldn't", "unable"} {
		if strings.Contains(output, failure) {
			return fmt.Errorf("the guest's %s complains of %q", program(c), failure)
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
			RPingText(text, n)
			wants = append(wants, fmt.Sprintf("ping data: %s\n", text[:c.Size-1]))
		}
	}
	printing := 1 // programs in the guest that print each text
	if c.Role == Server && c.Variant == persistent {
		printing = c.connections()
	}
	for _, want := range wants {
		if strings.Count(output, want) != printing {
			return fmt.Errorf("the guest's %s should have printed %.60q %d times", program(c), want, printing)
		}
	}
	return nil
}
