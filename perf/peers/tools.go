package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// tool is a benchmark with a server and a client, which measures one kind and size of messages in
// each run.
type tool struct {
	port int // on which the server waits
	// serverArgs and clientArgs are the arguments of both ends. The client's end with the address
	// of the server where that is an argument of its own.
	serverArgs, clientArgs func(m *measurement, count int, server string) []string
	env                    func(device string) []string // that make it use a network device
	parse                  func(clientOutput string, m *measurement) (secondsPerMessage float64, err error)
}

// The benchmarks. UCX and libfabric match tags, as MPI does. iperf3 writes to a TCP connection.
var (
	ucxTool = tool{
		port:       13337,
		serverArgs: func(*measurement, int, string) []string { return nil },
		clientArgs: ucxArgs,
		env:        func(device string) []string { return []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=" + device} },
		parse:      parseUCX,
	}
	libfabricTool = tool{
		port:       47592,
		serverArgs: func(m *measurement, count int, _ string) []string { return libfabricArgs(m, count) },
		clientArgs: func(m *measurement, count int, server string) []string {
			return append(libfabricArgs(m, count), server)
		},
		env:   func(device string) []string { return []string{"FI_TCP_IFACE=" + device} },
		parse: parseLibfabric,
	}
	iperfTool = tool{
		port:       5201,
		serverArgs: func(*measurement, int, string) []string { return []string{"-s", "-1"} },
		clientArgs: iperfArgs,
		env:        func(string) []string { return nil },
		parse:      parseIperf,
	}
)

// run runs the measurements that a tool has, each with a server in the first host and a client in
// the second.
func (t *tool) run(ctx context.Context, f *fabric, p *programs) (turn, error) {
	results := turn{}
	for _, m := range p.Measurements {
		text, err := t.runOnce(ctx, f, p.Program, &m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		if results[m.name()], err = t.parse(text, &m); err != nil {
			return nil, fmt.Errorf("%s: %w: it printed %q", m.name(), err, text)
		}
	}
	return results, nil
}

// runOnce runs a measurement and returns the output of the client. It stops the server if the client
// fails.
func (t *tool) runOnce(ctx context.Context, f *fabric, program string, m *measurement) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const ipv4 = true
	address, count := f.hosts[0].NICs[0].Addr(ipv4).String(), repetitions(m, f.Slice)
	var serverOutput bytes.Buffer
	server := t.command(ctx, f, 0, append([]string{program}, t.serverArgs(m, count, address)...))
	server.Stdout, server.Stderr = &serverOutput, &serverOutput
	if err := f.hosts[0].NS.Start(server); err != nil {
		return "", err
	}
	text, err := "", waitListening(ctx, server.Process.Pid, t.port)
	if err == nil {
		text, err = f.outputIn(1, t.command(ctx, f, 1, append([]string{program}, t.clientArgs(m, count, address)...)))
	}
	if err != nil {
		cancel()
	}
	if serverErr := server.Wait(); err != nil || serverErr != nil {
		return "", errors.Join(err, serverErr, errors.New(text+serverOutput.String()))
	}
	return text, nil
}

// command returns a command that runs a program in host i, bound to the CPU of that host, with the
// environment in which the tool uses the host's network device.
func (t *tool) command(ctx context.Context, f *fabric, i int, program []string) *exec.Cmd {
	args := append([]string{rolePinned, strconv.Itoa(f.cpus[i])}, program...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), t.env(f.hosts[i].NICs[0].Name)...)
	return cmd
}

// waitListening waits until a TCP socket listens on a port in the network namespace of a process.
func waitListening(ctx context.Context, pid, port int) error {
	const interval = 5 * time.Millisecond
	for ctx.Err() == nil {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
			if err != nil {
				return fmt.Errorf("the server has ended: %w", err)
			}
			if listens(string(text), port) {
				return nil
			}
		}
		time.Sleep(interval)
	}
	return context.Cause(ctx)
}

// listens reports whether a table of sockets, as in /proc/net/tcp, has one that listens on a port.
func listens(table string, port int) bool {
	const stateListen = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		if cells := strings.Fields(line); len(cells) > 3 && strings.HasSuffix(cells[1], suffix) && cells[3] == stateListen {
			return true
		}
	}
	return false
}

// repetitions returns how many messages a program sends that cannot measure for a given time: as many
// as take about a slice at 20 µs for half a round trip, 1 µs for a message of a stream, and 2.5 GB/s.
func repetitions(m *measurement, slice time.Duration) int {
	seconds := 1e-6 + float64(m.Bytes)/2.5e9
	if m.Kind == pingpong {
		seconds = 20e-6
	}
	return max(firstCount, int(slice.Seconds()/seconds))
}

// ucxArgs returns the arguments of ucx_perftest for a measurement: tagged messages, as many under way
// as the ranks have.
func ucxArgs(m *measurement, count int, server string) []string {
	test := "tag_lat"
	if m.Kind == stream {
		test = "tag_bw"
	}
	n := strconv.Itoa(count)
	return []string{server, "-t", test, "-s", strconv.Itoa(m.Bytes), "-n", n, "-w", strconv.Itoa(count/10 + 1), "-O", strconv.Itoa(window(m.Bytes)), "-f", "-v"}
}

// parseUCX parses the table of ucx_perftest -f -v: the median half round trip in microseconds, or the
// mean message rate.
func parseUCX(text string, m *measurement) (float64, error) {
	names, values, ok := lastTwoLines(text, ",")
	if !ok {
		return 0, errors.New("no table")
	}
	column := func(name string) (float64, error) {
		for i := range names {
			if names[i] == name && i < len(values) {
				return positive(values[i])
			}
		}
		return 0, fmt.Errorf("no column %s", name)
	}
	if m.Kind == pingpong {
		micros, err := column("50.0_percentile_lat")
		return micros / 1e6, err
	}
	rate, err := column("overall_mr")
	return 1 / rate, err
}

// libfabricArgs returns the arguments of fi_pingpong for a measurement, without the server's address.
// It makes a tenth of the round trips: its provider tcp takes many times as long as the others.
func libfabricArgs(m *measurement, count int) []string {
	return []string{"-p", "tcp", "-e", "rdm", "-m", "tagged", "-S", strconv.Itoa(m.Bytes), "-I", strconv.Itoa(max(firstCount, count/10))}
}

// parseLibfabric parses the table of fi_pingpong: the mean half round trip in microseconds.
func parseLibfabric(text string, _ *measurement) (float64, error) {
	names, values, ok := lastTwoLines(text, "")
	const micros = 6 // its column; "bytes   #sent   #ack     total       time     MB/sec    usec/xfer"
	if !ok || len(names) <= micros || len(values) <= micros || names[micros] != "usec/xfer" {
		return 0, errors.New("no table with usec/xfer")
	}
	v, err := positive(values[micros])
	return v / 1e6, err
}

// minIperfBytes is the smallest size for which iperf3 is measured: smaller writes would measure system
// calls, because TCP joins them. maxIperfBytes is the longest write that it makes.
const (
	minIperfBytes = 64 << 10
	maxIperfBytes = 1 << 20
)

// iperfArgs returns the arguments of the client of iperf3 for a measurement.
func iperfArgs(m *measurement, count int, server string) []string {
	return []string{"-c", server, "-J", "-i", "0", "-l", strconv.Itoa(min(m.Bytes, maxIperfBytes)), "-n", strconv.Itoa(count * m.Bytes)}
}

// parseIperf parses the JSON report of iperf3: the bandwidth at the receiver, as seconds per message.
func parseIperf(text string, m *measurement) (float64, error) {
	var report struct {
		End struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		return 0, err
	}
	if report.End.Received.BitsPerSecond <= 0 {
		return 0, errors.New("nothing was received")
	}
	return float64(m.Bytes) * 8 / report.End.Received.BitsPerSecond, nil
}

// lastTwoLines splits the last two lines of a text into cells: those of a table's head and of its
// values. ok is false if there are no two lines.
func lastTwoLines(text, separator string) (names, values []string, ok bool) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 2 {
		return nil, nil, false
	}
	cells := strings.Fields
	if separator != "" {
		cells = func(line string) []string { return strings.Split(strings.TrimSpace(line), separator) }
	}
	return cells(lines[len(lines)-2]), cells(lines[len(lines)-1]), true
}

// positive parses a number that must be greater than 0.
func positive(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && v <= 0 {
		err = fmt.Errorf("%s is not positive", text)
	}
	return v, err
}
