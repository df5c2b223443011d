package mpirun

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// ProxyCommand is the first argument of the process that starts the ranks of a host for OnHosts. Its
// program must call ProxyMain.
const ProxyCommand = "mpi-proxy"

// DefaultLauncher is the remote shell that starts programs on other hosts.
const DefaultLauncher = "ssh"

// Host is a host of ranks.
type Host struct {
	Name  string `json:"name"`
	Ranks int    `json:"ranks"` // on this host; 0 for a share of the ranks that other hosts leave
}

// String returns the host as in a list for ParseHosts.
func (h Host) String() string {
	name := h.Name
	if strings.ContainsRune(name, ':') {
		name = "[" + name + "]"
	}
	return fmt.Sprintf("%s:%d", name, h.Ranks)
}

// RemoteStart says how programs are started on other hosts.
type RemoteStart struct {
	// Launcher is the remote shell with its arguments; the host and the command follow. An argument
	// HostPlaceholder stands for the host instead. Empty means DefaultLauncher.
	Launcher []string `json:"launcher,omitempty"`
	// Program is the path of this program on the hosts; empty if it is the path here.
	Program string `json:"program,omitempty"`
}

// HostPlaceholder is an argument of a launcher that is replaced by the host.
const HostPlaceholder = "{host}"

// hostName matches the names and addresses of hosts. A name that begins with - would be an option of the launcher.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_.@%+:][A-Za-z0-9_.@%+:-]*$`)

// ParseHosts parses a list of hosts, each with its number of ranks if that is given: a,b:4,[fd00::1]:2.
// A host that is named several times has one rank, or the given number, for each time.
func ParseHosts(list string) (hosts []Host, err error) {
	for word := range strings.SplitSeq(list, ",") {
		h, err := parseHost(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		hosts = addHost(hosts, h)
	}
	return hosts, nil
}

// addHost appends a host, or adds its ranks to those of the same host in the list.
func addHost(hosts []Host, h Host) []Host {
	i := slices.IndexFunc(hosts, func(o Host) bool { return o.Name == h.Name })
	if i < 0 {
		return append(hosts, h)
	}
	hosts[i].Ranks = cmp.Or(hosts[i].Ranks, 1) + cmp.Or(h.Ranks, 1)
	return hosts
}

// parseHost parses a host with its number of ranks if that is given. An IPv6 address with a number is in
// brackets.
func parseHost(word string) (h Host, err error) {
	name, count, hasCount := strings.Cut(word, ":")
	if _, isAddr := netip.ParseAddr(word); isAddr == nil {
		name, hasCount = word, false
	} else if inner, after, ok := strings.Cut(strings.TrimPrefix(word, "["), "]"); ok && word[0] == '[' {
		name = inner
		count, hasCount = strings.CutPrefix(after, ":")
		if after != "" && !hasCount {
			return h, fmt.Errorf("%q: give HOST or HOST:RANKS", word)
		}
	}
	h.Name = name
	if hasCount {
		if h.Ranks, err = parseRanks(count); err != nil {
			return h, fmt.Errorf("%q: %w", word, err)
		}
	}
	if !hostName.MatchString(name) {
		return h, fmt.Errorf("%q is not the name or the address of a host", name)
	}
	return h, nil
}

// parseRanks parses the number of ranks of a host.
func parseRanks(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxRanks {
		return 0, fmt.Errorf("%q ranks: give 1 to %d", text, MaxRanks)
	}
	return n, nil
}

// maxHostFile is the largest file of hosts, in bytes.
const maxHostFile = 1 << 20

// ReadHosts reads a file with a host in each line, as in lists of ParseHosts or, with its number of ranks,
// as in "b slots=4". Text after # does not count.
func ReadHosts(path string) (hosts []Host, err error) {
	text, err := cli.ReadFile(path, maxHostFile)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		h, err := parseHost(words[0])
		for _, word := range words[1:] {
			slots, ok := strings.CutPrefix(word, "slots=")
			if err == nil && !ok {
				err = fmt.Errorf("unexpected %q: give HOST, HOST:RANKS or HOST slots=RANKS", word)
			}
			if err == nil {
				h.Ranks, err = parseRanks(slots)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		hosts = addHost(hosts, h)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s names no host", path)
	}
	return hosts, nil
}

// PlaceRanks returns the hosts with their numbers of ranks, without hosts that have none. Hosts without
// a number get equal shares of the ranks that the others leave; if ranks is 0, one each.
func PlaceRanks(hosts []Host, ranks int) (placed []Host, err error) {
	given, open := 0, 0
	for _, h := range hosts {
		given += h.Ranks
		if h.Ranks == 0 {
			open++
		}
	}
	ranks = cmp.Or(ranks, given+open)
	left, rest := ranks, max(ranks-given, 0)
	for _, h := range hosts {
		if h.Ranks == 0 {
			h.Ranks = (rest + open - 1) / open // the first of them have one more
			rest, open = rest-h.Ranks, open-1
		}
		h.Ranks = min(h.Ranks, left)
		left -= h.Ranks
		if h.Ranks > 0 {
			placed = append(placed, h)
		}
	}
	if left > 0 {
		return nil, fmt.Errorf("the hosts have %d ranks, and not %d", ranks-left, ranks)
	}
	return placed, nil
}

// SetHosts places ranks on hosts as PlaceRanks does, and sets the fields of c that depend on it.
func (c *Config) SetHosts(hosts []Host, ranks int) (err error) {
	if c.Hosts, err = PlaceRanks(hosts, ranks); err != nil {
		return err
	}
	c.Ranks, c.PerHost, c.HostRanks = 0, 0, nil
	for _, h := range c.Hosts {
		c.Ranks += h.Ranks
		c.PerHost = max(c.PerHost, h.Ranks) // for reports and rules of algorithms
		c.HostRanks = append(c.HostRanks, h.Ranks)
	}
	return nil
}

// plainPath matches paths that a shell does not change. A remote shell parses the command line, and
// other launchers do not.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./~-]+$`)

// words returns the launcher with its arguments.
func (r *RemoteStart) words() []string {
	if len(r.Launcher) == 0 {
		return []string{DefaultLauncher}
	}
	return r.Launcher
}

// on returns the command line that runs a command on a host: options are for the launcher.
func (r *RemoteStart) on(host string, options []string, command ...string) []string {
	words := slices.Clone(r.words())
	if i := slices.Index(words, HostPlaceholder); i >= 0 {
		words[i] = host
	} else {
		words = append(append(words, options...), host)
	}
	return append(words, command...)
}

// sshOptions are those of ssh: a process in the background cannot ask for a password, and no program
// here uses X11.
var sshOptions = []string{"-x", "-o", "BatchMode=yes"}

// proxyCommand returns the command line that runs the proxy of a host. program is its path there.
func (r *RemoteStart) proxyCommand(host, program string) ([]string, error) {
	if !plainPath.MatchString(program) {
		return nil, cli.Errorf("a remote shell may change the path %q: copy fabrictest to a path of letters and digits, or give its path on the hosts with --remote-path", program)
	}
	var options []string
	if filepath.Base(r.words()[0]) == DefaultLauncher {
		options = sshOptions
	}
	return r.on(host, options, program, ProxyCommand), nil
}
