package mpirun

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/process"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// enterCommand makes the test binary a remote shell for hosts that are network namespaces. The next arguments
// are HOST=FILE for each host, with the file of its namespace, then "--", the host, and the command.
const enterCommand = "test-enter"

// enter runs a command in the namespace of a host.
func enter(args []string) error {
	files := map[string]string{}
	for i, arg := range args {
		if arg == "--" {
			args = args[i+1:]
			break
		}
		host, file, _ := strings.Cut(arg, "=")
		files[host] = file
	}
	ns, err := os.Open(files[args[0]])
	if err != nil {
		return err
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return syscall.Exec(args[1], args[1:], os.Environ())
}

// twoHosts returns the configuration of ranks on two hosts, network namespaces with an address for each of up to
// four ranks. ranks is the number of ranks on each host.
func twoHosts(t *testing.T, program string, ranks ...int) Config {
	t.Helper()
	a, b := testutil.HostPair(t, 1500)
	return onTwoHosts(t, a, b, program, ranks...)
}

func onTwoHosts(t *testing.T, a, b *testutil.Host, program string, ranks ...int) Config {
	t.Helper()
	c := configOf(program, 0, 0)
	c.Remote.Launcher = []string{must.Get(os.Executable())(t), enterCommand}
	var hosts []Host
	for i, h := range []*testutil.Host{a, b} {
		name := string(rune('a' + i))
		c.Remote.Launcher = append(c.Remote.Launcher, fmt.Sprintf("%s=/proc/%d/fd/%d", name, os.Getpid(), h.FD()))
		hosts = append(hosts, Host{name, ranks[i]})
		for slot := range ranks[i] - 1 {
			addr := h.V4.As4()
			addr[3] += byte(16 * (slot + 1))
			must.Do(t, h.AddAddr(netip.PrefixFrom(netip.AddrFrom4(addr), 24)))
		}
	}
	c.Remote.Launcher = append(c.Remote.Launcher, "--")
	c.NetDevs = []string{testutil.HostDevice}
	must.Do(t, c.SetHosts(hosts, 0))
	return c
}

// hostsVariable has the configuration of ranks on hosts, for launcher.
const hostsVariable = "FABRICTEST_TEST_HOSTS"

// runOnHosts runs launcher in a child process.
func runOnHosts(t *testing.T, c *Config, stdin string) (code int, out string) {
	t.Helper()
	t.Setenv(hostsVariable, string(must.Get(json.Marshal(c))(t)))
	return runLauncher(t, stdin, "hosts", "-", "0", "0")
}

func TestRanksOfHostsExchangeData(t *testing.T) {
	for _, provider := range nics.Names() {
		c := twoHosts(t, "exchange", 3, 2)
		c.Provider, c.Reports, c.Options = provider, true, json.RawMessage(`{"design":"any"}`)
		result, err := OnHosts(t.Context(), c)
		if err != nil || result.Code != 0 || len(result.Reports) != 5 {
			t.Fatalf("%s: %+v, %v", provider, result, err)
		}
		for i, text := range result.Reports {
			var got struct {
				Rank    int
				Options string
			}
			if err := json.Unmarshal(text, &got); err != nil || got.Rank != i || got.Options != `{"design":"any"}` {
				t.Errorf("%s: rank %d: %s, %v", provider, i, text, err)
			}
		}
	}
}

// Ranks send no longer packets than the network interface of another host takes.
func TestRanksOfHostsAgreeOnMTU(t *testing.T) {
	for _, program := range []string{"exchange", "datagrams"} {
		a, b := testutil.HostPair(t, 9000)
		must.Do(t, b.Do(func() error {
			dev, err := netlink.LinkByName(testutil.HostDevice)
			if err != nil {
				return err
			}
			return netlink.LinkSetMTU(dev, 1500)
		}))
		c := onTwoHosts(t, a, b, program, 1, 1)
		c.Limit = 20 * time.Second
		if code, out := runOnHosts(t, &c, ""); code != 0 {
			t.Errorf("%s: code %d\n%s", program, code, out)
		}
	}
}

// Ranks of several hosts print, fail and end as those of this machine do.
func TestExitStatusOfHosts(t *testing.T) {
	cpus := must.Get(process.UsableCPUs())(t)
	input := strings.Repeat("line\n", 40<<10) + "some text\n" // longer than a pipe and a command
	for _, c := range []struct {
		program string
		change  func(*Config)
		code    int
		wants   []string
		never   string
	}{
		{"hello", func(c *Config) { c.Label = true }, 0, []string{
			"0: rank 0 of 3 on host 0: 10.77.0.1\n", "1: rank 1 of 3 on host 1: 10.77.0.2\n", "2: rank 2 of 3 on host 1: 10.77.0.18\n",
		}, ""},
		{"share", nil, 0, nil, "counter"},
		{"times", nil, 0, nil, "message"},
		{"bound", func(c *Config) { c.Bind = true }, 0, []string{"rank 0 has 1\n", "rank 2 has 1\n"}, ""},
		{"bound", nil, 0, []string{fmt.Sprintf("rank 2 has %d\n", len(cpus))}, ""},
		{"reads", nil, 0, []string{"read line\nline\n", "\nline\nsome text\n"}, ""},
		{"fails", nil, 1, []string{"fabrictest: rank 1 on b failed: test error\n"}, "host "},
		{"fails", func(c *Config) { c.KeepGoing = true }, 1, []string{"rank 1 on b failed: test error", "rank 0: peer is gone", "rank 2: peer is gone"}, ""},
		{"abort", nil, 7, []string{"fabrictest: rank 1 aborted all ranks with code 7: enough\n"}, "continued"},
		{"abort", func(c *Config) { c.KeepGoing = true }, 7, []string{"aborted all ranks with code 7: enough"}, "continued"},
		{"dies", nil, 2, []string{"panic: a bug", "rank 1 on b crashed: panic: a bug"}, ""},
		{"nothing", nil, 1, []string{" ended: it did not join the job"}, ""},
		{"forever", func(c *Config) { c.Limit = time.Second }, 1, []string{"fabrictest: the limit of 1s is reached", "the state of rank 2 on b was:\n  waits for a message from rank 2"}, ""},
		{"orphan", nil, 1, []string{"fabrictest: host b: " + os.Args[0] + " ended by SIGKILL: the connection was lost\n"}, ""},
		{"folder", nil, 0, []string{"rank 0 in /", "rank 2 in /"}, ""},
	} {
		config := twoHosts(t, c.program, 1, 2)
		if c.change != nil {
			c.change(&config)
		}
		code, out := runOnHosts(t, &config, input)
		if code != c.code || (c.never != "" && strings.Contains(out, c.never)) {
			t.Errorf("%s: code %d, want %d\n%s", c.program, code, c.code, out)
		}
		for _, want := range c.wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", c.program, want, out)
			}
		}
	}
}

// writeLauncher writes a remote shell that runs a script, with the host as $1, and returns its path.
func writeLauncher(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "launcher")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	return path
}

// The error names the host, and what to try.
func TestErrorsOfHostsSayWhatToTry(t *testing.T) {
	self := must.Get(os.Executable())(t)
	const run = `shift; exec "$@"`
	noDevice := "open_device no-such-device"
	if !ibv.Linked {
		noDevice = "list the devices of ibverbs: "
	}
	for name, c := range map[string]struct {
		script string // of the launcher
		change func(*Config)
		want   string // LAUNCHER and SELF stand for the paths of the launcher and of this program
	}{
		"refused":      {"echo ssh: connect to host $1: Connection refused >&2; exit 255", nil, "fabrictest: host b: LAUNCHER exited with 255: ssh: connect to host b: Connection refused; try `LAUNCHER b true`\n"},
		"not found":    {"shift; exec /no/such/path/fabrictest", nil, "not found; copy fabrictest to SELF on b, or give its path there with --remote-path\n"},
		"killed":       {"kill -9 $$", nil, "host b: LAUNCHER ended by SIGKILL; try `LAUNCHER b true`\n"},
		"banner":       {`echo "Welcome to $1"; ` + run, nil, `host b: protocol violation: "Welcome to b" was printed before`},
		"many lines":   {"for i in 6 7 8 9; do echo $i >&2; done; exit 255", nil, "exited with 255: 7; 8; 9; try"},
		"interface":    {run, func(c *Config) { c.NetDevs = []string{"no-such-interface"} }, "host b: network interface no-such-interface: route ip+net: no such network interface: this host has [lo"},
		"loopback":     {run, nil, "host b: network interface lo has no routable address, only [127.0.0.1"},
		"device":       {run, func(c *Config) { c.NetDevs, c.Devices = nil, []string{"no-such-device"} }, "host b: " + noDevice},
		"no program":   {run, func(c *Config) { c.Args = []string{"/no/such/program"} }, "host b: exec: \"/no/such/program\": stat /no/such/program: no such file or directory: copy the program to the same path"},
		"this program": {run, func(c *Config) { c.Remote.Program = "/no/such/fabrictest" }, "copy fabrictest to /no/such/fabrictest on b"},
		"this machine": {"exit 255", func(c *Config) { must.Do(t, c.SetHosts([]Host{{"localhost", 2}}, 0)) }, "host localhost: network interface lo has no routable address"},
		"warning":      {`echo "Warning: new key of $1" >&2; ` + run, nil, "host b: Warning: new key of b\n"},
		"many hosts": {"exit 255", func(c *Config) {
			must.Do(t, c.SetHosts(must.Get(ParseHosts("a,b,c,d,e,f,g,h,i,j,k,l"))(t), 0))
			c.KeepGoing = true
		}, "fabrictest: and 4 hosts more\n"},
	} {
		t.Run(name, func(t *testing.T) {
			launcher := writeLauncher(t, c.script)
			config := configOf("exchange", 0, 0)
			config.NetDevs, config.Remote.Launcher = []string{"lo"}, []string{launcher}
			must.Do(t, config.SetHosts([]Host{{"b", 2}}, 0))
			if c.change != nil {
				c.change(&config)
			}
			code, out := runOnHosts(t, &config, "")
			want := strings.NewReplacer("LAUNCHER", launcher, "SELF", self).Replace(c.want)
			if code != 1 || !strings.Contains(out, want) {
				t.Errorf("code %d, want %q in\n%s", code, want, out)
			}
		})
	}
}

// A proxy runs ranks in the directory of the launcher if its host has that.
func TestProxyAdaptsJobToHost(t *testing.T) {
	dir := t.TempDir()
	for given, want := range map[string]string{dir: dir, filepath.Join(dir, "missing"): "", "/dev/null": ""} {
		j := proxyJob{fabricJob: fabricJob{Config: configOf("hello", 1, 1), Dir: given}}
		j.Args[0] = ""
		if err := j.adapt(); err != nil || j.Dir != want || j.Args[0] != must.Get(os.Executable())(t) {
			t.Errorf("%s: %s in %q, %v", given, j.Args[0], j.Dir, err)
		}
	}
}

// Ranks with TCP share an address; others need one each.
func TestRanksNeedAddresses(t *testing.T) {
	a, _ := testutil.HostPair(t, 1500)
	must.Do(t, a.AddAddr(netip.MustParsePrefix("10.77.0.99/24")))
	for provider, ranks := range map[string]int{"softroce": 2, "dgiwarp": 2, "softiwarp": 100} {
		c := Config{NetDevs: []string{testutil.HostDevice}}
		c.Provider = provider
		must.Do(t, a.Do(func() error {
			nicsOf, err := c.netdevNICs(ranks)
			if err != nil {
				return err
			}
			for slot := range ranks {
				want := []string{"10.77.0.1", "10.77.0.99"}[slot%2]
				if n := nicsOf(slot); len(n) != 1 || n[0].Addr.String() != want || n[0].Device {
					t.Errorf("%s: rank %d has %+v, want %s", provider, slot, n, want)
				}
			}
			if _, err := c.netdevNICs(ranks + 1); provider != "softiwarp" && (err == nil || !strings.Contains(err.Error(), "has the routable addresses [10.77.0.1 10.77.0.99], and each of 3 ranks needs one")) {
				t.Errorf("%s: %v", provider, err)
			}
			return nil
		}))
	}
}

// launchOnHosts runs the job in the environment.
func launchOnHosts(ctx context.Context, _ Config) (Result, error) {
	var c Config
	if err := json.Unmarshal([]byte(os.Getenv(hostsVariable)), &c); err != nil {
		return Result{}, err
	}
	return OnHosts(ctx, c)
}

// The command line of a run on hosts repeats it, with the numbers of ranks.
func TestCommandLineNamesHosts(t *testing.T) {
	c := configOf("ring", 0, 0)
	must.Do(t, c.SetHosts(must.Get(ParseHosts("a,b:3"))(t), 5))
	c.NetDevs, c.Rails, c.Seed, c.Provider = []string{"eth0"}, 1, 1, "softiwarp"
	c.Remote = RemoteStart{Launcher: []string{"ssh", "-p", "2222"}, Program: "/opt/fabrictest"}
	s := Settings{Loss: "0%"}
	const want = "fabrictest mpirun -n 5 --hosts=a:2,b:3 --launcher='ssh -p 2222' --remote-path=/opt/fabrictest --netdev=eth0 --provider=softiwarp ring"
	if got := s.CommandLine("fabrictest mpirun", onDevice, &c, []string{"ring"}); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	f, err := c.TuningFabric(onDevice)
	if err != nil || f.Tier != onDevice || f.Provider != "softiwarp" || f.Topology != "switch" {
		t.Errorf("fabric %+v, %v", f, err)
	}
}
