package main

import (
	"slices"
	"strings"
	"testing"
)

func TestPatternsSelect(t *testing.T) {
	all := scenarios()
	service := func(want string) func(string) bool {
		return func(id string) bool { return strings.HasPrefix(id, want+"/") }
	}
	network := func(want string) func(string) bool {
		return func(id string) bool { return strings.HasSuffix(id, "/"+want) }
	}
	for pattern, want := range map[string]func(id string) bool{
		"*":       func(string) bool { return true },
		"*/*":     func(string) bool { return true },
		"rc":      service("rc"),
		"rc-cm":   service("rc-cm"),
		"loss":    network("loss"),
		"*/loss":  network("loss"),
		"rc/*":    service("rc"),
		"ud/loss": func(id string) bool { return id == "ud/loss" },
		"u?":      func(id string) bool { return service("uc")(id) || service("ud")(id) },
	} {
		some, err := choose(all, []string{pattern})
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		expected := slices.DeleteFunc(ids(all), func(id string) bool { return !want(id) })
		if got := ids(some); len(got) == 0 || !slices.Equal(got, expected) {
			t.Errorf("%s selects %v, want %v", pattern, got, expected)
		}
	}
}

func TestNearNames(t *testing.T) {
	all := []string{"rc/clean", "rc/loss", "uc/loss", "ud/loss", "rc/bursts", "xrc/loss"}
	for name, want := range map[string]string{
		"rc/los": "rc/loss xrc/loss uc/loss ud/loss", "RC/LOSS": "rc/loss xrc/loss uc/loss ud/loss", "burst": "rc/bursts", "nonsense": "", "": "",
	} {
		if got := strings.Join(near(name, all), " "); got != want {
			t.Errorf("near(%q) = %q, want %q", name, got, want)
		}
	}
	many := strings.Split(strings.Repeat("abcdef ", 20), " ")
	if got := near("abcdef", many); len(got) != maxNear {
		t.Errorf("%d names suggested", len(got))
	}
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"abc", ""}: 3, {"", "ab"}: 2, {"kitten", "sitting"}: 3, {"ab", "ba"}: 2} {
		if got := distance(pair[0], pair[1]); got != want {
			t.Errorf("distance%q = %d, want %d", pair, got, want)
		}
	}
}

func TestInvocation(t *testing.T) {
	for arg0, want := range map[string]string{
		"fabrictest":                           "fabrictest",
		"/usr/local/bin/fabrictest":            "fabrictest",
		"./ft":                                 "ft",
		"/tmp/go-build123/b001/exe/fabrictest": goRun,
		"/root/.cache/go-build/0a/0a12-d/fabrictest": goRun,
		"/home/u/go-builder/fabrictest":              "fabrictest",
	} {
		if got := invocation(arg0); got != want {
			t.Errorf("invocation(%q) = %q, want %q", arg0, got, want)
		}
	}
}
