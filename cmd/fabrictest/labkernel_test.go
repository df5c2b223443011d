package main

import (
	"runtime"
	"strings"
	"testing"
)

func TestKernelLabWrongCalls(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel labs need Linux")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const none = "no kernel lab called test-none is up: start one with 'fabrictest lab kernel up'"
	for words, want := range map[string]struct {
		code int
		says string
	}{
		"lab kernel exec 1 ls":                              {exitUsage, "put the program behind --, as in"},
		"lab kernel exec 1 2 -- ls":                         {exitUsage, "name one guest, or host"},
		"lab kernel exec --lab test-none 1 -- ls":           {exitFailed, none},
		"lab kernel exec --lab a/b 1 -- ls":                 {exitFailed, "invalid lab name \"a/b\""},
		"lab kernel run bash":                               {exitUsage, "put the program to run behind --"},
		"lab kernel put zero labkernel.go":                  {exitUsage, "\"zero\" is no guest: give its number"},
		"lab kernel put 1 no-such-file":                     {exitUsage, "no-such-file"},
		"lab kernel put 1 testdata":                         {exitUsage, "open testdata: it is a folder, not a regular file"},
		"lab kernel put --lab test-none 1 labkernel.go":     {exitFailed, none},
		"lab kernel devices 1 mlx5":                         {exitUsage, "no device \"mlx5\": there are rxe, siw and siw-crc"},
		"lab kernel set 1":                                  {exitUsage, "as in 'fabrictest lab kernel set 1 loss=5%'"},
		"lab kernel set zero down":                          {exitUsage, "\"zero\" is no guest: give its number"},
		"lab kernel set 1 loss=5":                           {exitUsage, "loss=5: 5 is not a percentage"},
		"lab kernel set 1 los=5%":                           {exitUsage, "los=5%: unknown key; did you mean loss?"},
		"lab kernel set 1 reorder=1%":                       {exitUsage, "guest 1 reorder=1%: reorder_delay: is missing"},
		"lab kernel set 1 clean now":                        {exitUsage, "\"clean\": give up, down, clean, or KEY=VALUE"},
		"lab kernel set --lab test-none * loss=5%":          {exitFailed, none},
		"lab kernel set --lab test-none 1 down":             {exitFailed, none},
		"lab kernel up --impair loss=5":                     {exitUsage, "loss=5: 5 is not a percentage"},
		"lab kernel restart 0":                              {exitUsage, "\"0\" is no guest"},
		"lab kernel console 10":                             {exitUsage, "\"10\" is no guest"},
		"lab kernel status --lab test-none":                 {exitFailed, none},
		"lab kernel down --lab test-none":                   {exitFailed, none},
		"lab kernel up --kernel 5.10":                       {exitUsage, "--kernel: no kernel \"5.10\": there are 6.1 and 6.12"},
		"lab kernel up --devices siw,siw-crc":               {exitUsage, "--devices: two devices of kind siw"},
		"lab kernel up --lab ../x":                          {exitUsage, "--lab: invalid lab name"},
		"lab kernel build --kernel 7":                       {exitUsage, "--kernel: no kernel"},
		"lab kernel upp":                                    {exitUsage, "unknown command \"upp\"; did you mean up?"},
		"lab kernel up --device rxe":                        {exitUsage, "did you mean --devices?"},
		"lab kernel check --built --cache /no/such/folder/": {exitFailed, ""}, // QEMU, /dev/net/tun or the image
	} {
		code, _, stderr := call(t, strings.Fields(words)...)
		if code != want.code || !strings.Contains(stderr, want.says) || stderr == "" {
			t.Errorf("%s: exit code %d, %q; want %d and %q", words, code, stderr, want.code, want.says)
		}
	}
}

// What is missing is named with the command that installs it.
func TestKernelLabNamesWhatIsMissing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel labs need Linux")
	}
	t.Setenv("PATH", t.TempDir())
	for _, words := range []string{"lab kernel check", "lab kernel up", "lab kernel run -- true"} {
		code, _, stderr := call(t, strings.Fields(words)...)
		if code != exitFailed || !strings.Contains(stderr, "qemu-system-x86_64 is missing") || !strings.Contains(stderr, "apt-get install --no-install-recommends qemu-system-x86 ") {
			t.Errorf("%s: exit code %d, %q", words, code, stderr)
		}
	}
}

func TestKernelLabCommandsSayWhatTheyDo(t *testing.T) {
	cmd, _, err := newRootCommand("fabrictest").Find([]string{"lab", "kernel"})
	if err != nil || len(cmd.Commands()) < 10 {
		t.Fatalf("%d commands, %v", len(cmd.Commands()), err)
	}
	for _, c := range cmd.Commands() {
		if c.Short == "" || c.RunE == nil {
			t.Errorf("%s says nothing of itself, or does nothing", c.Name())
		}
	}
}
