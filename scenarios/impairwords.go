package scenarios

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// ImpairText returns a scenario file with the impairments of one port, given as words of a
// command line: "clean", or KEY=VALUE with the keys of an impairment. Error messages
// call the port known.
func ImpairText(fabric Fabric, port, known string, words []string) (string, error) {
	s := &Scenario{
		Version: FormatVersion, Name: "set", Title: "What packets meet", Workload: workload.Config{Kind: workload.AllToAll},
		Fabric: fabric,
	}
	text, err := s.Marshal()
	if err != nil {
		return "", err
	}
	if len(words) == 1 && words[0] == "clean" {
		return string(text), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nimpair:\n  - on: [%q]\n", text, port)
	way := false
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			return "", cmdline.Errorf("%q: give up, down, clean, or KEY=VALUE such as loss=1%%", w)
		}
		way = way || key == "way"
		fmt.Fprintf(&b, "    %s: %s\n", key, value)
	}
	if !way {
		b.WriteString("    way: " + Both + "\n")
	}
	// A mistake is reported here, in the user's words.
	if _, err := Parse("set.yaml", []byte(b.String())); err != nil {
		return "", ImpairError(err, known, words)
	}
	return b.String(), nil
}

// ImpairError rewrites an error about the text of ImpairText in the words of the command
// line.
func ImpairError(err error, known string, words []string) error {
	return TranslateErrors(err, func(key string) string {
		name, ok := strings.CutPrefix(key, "impair[0].")
		if ok && strings.HasPrefix(name, "on") {
			return known
		}
		for _, w := range words {
			if k, _, _ := strings.Cut(w, "="); k == name {
				return w
			}
		}
		if ok && name != "" { // a key that is missing
			return known + " " + strings.Join(words, " ") + ": " + name
		}
		return known + " " + strings.Join(words, " ")
	})
}

// ImpairKeys returns the keys that ImpairText takes.
func ImpairKeys() (keys []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Impairment]()) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch name {
		case "", "on", "from", "until": // the port and the time are fixed
		default:
			keys = append(keys, name)
		}
	}
	return keys
}

// TranslateErrors rewrites the errors of a scenario that was made of a command line: name
// returns the words for a key.
func TranslateErrors(err error, name func(key string) string) error {
	var all Errors
	if !errors.As(err, &all) {
		return &cmdline.Error{Err: err}
	}
	lines := make([]string, 0, len(all))
	for _, e := range all {
		lines = append(lines, name(e.Key)+": "+e.Err.Error())
	}
	return cmdline.Errorf("%s", strings.Join(slices.Compact(lines), "\n"))
}
