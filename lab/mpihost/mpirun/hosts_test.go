package mpirun

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestHostsGetRanksInBlocks(t *testing.T) {
	for _, c := range []struct {
		list  string
		ranks int
		want  string // or the error
	}{
		{"a,b", 0, "[a:1 b:1]"},
		{"a,b,c:4", 8, "[a:2 b:2 c:4]"},
		{"a,b,c", 8, "[a:3 b:3 c:2]"},
		{"a:4, b:4", 0, "[a:4 b:4]"},
		{"a:4,b:4", 6, "[a:4 b:2]"},
		{"a:4,b:4,c", 4, "[a:4]"},
		{"a,b", 1, "[a:1]"},
		{"a,b,a", 0, "[a:2 b:1]"},
		{"a:2,b,a:2", 5, "[a:4 b:1]"},
		{"user@node-1.example.org,10.0.0.2:3", 5, "[user@node-1.example.org:2 10.0.0.2:3]"},
		{"fd00::1,[fd00::2]:2,[fd00::3]", 0, "[[fd00::1]:1 [fd00::2]:2 [fd00::3]:1]"},
		{"a:2,b:2", 9, "the hosts have 4 ranks, and not 9"},
		{"a:0", 0, `"a:0": "0" ranks: give 1 to 4096`},
		{"a:5000", 0, "give 1 to 4096"},
		{"a:x", 0, `"x" ranks`},
		{"a:", 0, `"" ranks`},
		{"", 0, `"" is not the name or the address of a host`},
		{"a,,b", 0, `"" is not the name`},
		{"-oProxyCommand=sh", 0, `"-oProxyCommand=sh" is not the name`},
		{"a b", 0, `"a b" is not the name`},
		{"a;b", 0, `"a;b" is not the name`},
		{"[fd00::2]2", 0, `"[fd00::2]2": give HOST or HOST:RANKS`},
	} {
		hosts, err := ParseHosts(c.list)
		var config Config
		if err == nil {
			err = config.SetHosts(hosts, c.ranks)
		}
		got := fmt.Sprint(config.Hosts)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s with %d ranks: %s, want %s", c.list, c.ranks, got, c.want)
		}
		sum := 0
		for _, n := range config.HostRanks {
			sum += n
		}
		if sum != config.Ranks || (c.ranks > 0 && err == nil && sum != c.ranks) {
			t.Errorf("%s with %d ranks: %+v", c.list, c.ranks, config)
		}
	}
}

func TestHostFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	for text, want := range map[string]string{
		"# two hosts\na:2\n\n b slots=3 # comment\nc\r\n": "[a:2 b:3 c:0]",
		"a\na\nb\n":      "[a:2 b:0]",
		"a\nb slots=0\n": path + `, line 2: "0" ranks`,
		"a max=3\n":      path + `, line 1: unexpected "max=3"`,
		"# none\n":       path + " names no host",
	} {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		hosts, err := ReadHosts(path)
		got := fmt.Sprint(hosts)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// The host and the command follow the launcher; only ssh gets options.
func TestLauncherCommandLine(t *testing.T) {
	for launcher, want := range map[string]string{
		"":                          "ssh -x -o BatchMode=yes b /opt/fabrictest mpi-proxy",
		"/usr/bin/ssh -p 2222":      "/usr/bin/ssh -p 2222 -x -o BatchMode=yes b /opt/fabrictest mpi-proxy",
		"rsh":                       "rsh b /opt/fabrictest mpi-proxy",
		"kubectl exec -i {host} --": "kubectl exec -i b -- /opt/fabrictest mpi-proxy",
		"ssh {host}":                "ssh b /opt/fabrictest mpi-proxy",
	} {
		r := RemoteStart{Launcher: strings.Fields(launcher)}
		if words, err := r.proxyCommand("b", "/opt/fabrictest"); err != nil || strings.Join(words, " ") != want {
			t.Errorf("%s: %q, %v, want %s", launcher, words, err, want)
		}
	}
	var r RemoteStart
	for _, path := range []string{"/my programs/fabrictest", "/tmp/$(reboot)", "/tmp/a;b", ""} {
		if _, err := r.proxyCommand("b", path); err == nil || !strings.Contains(err.Error(), "--remote-path") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
