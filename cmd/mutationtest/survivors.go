package main

import (
	"embed"
	"fmt"
	"strings"
)

// Each file lists mutants of a package that no case notices, with the reason:
//
//	package emu/softroce/cm
//	Config.withDefaults: 64 -> 65 | equivalent: the number of kept replies is our choice
//	Agent.handleLAP: drops a.counters.WrongState++ | statistics
//	Agent.endStale: negates c.x | unnoticed: no bench can restart a device
//
// Equivalent mutants, and those that change only statistics, do not count: no peer and no
// application sees a difference that a requirement forbids.
// A difference that shows only with an option or a policy which devices do not have by default
// counts as equivalent, too: no case judges such a device, and the tests of the package must notice it.
//
//go:embed survivors/*.txt
var survivorFiles embed.FS

// survivorReasons returns why no case notices the mutants that the embedded files list. The keys
// are those of survivorKey: the package, and what the mutant does. The reason is that the behaviour
// does not change ("equivalent: WHY"), that only counters change ("statistics"), or why a changed
// behaviour is not noticed ("unnoticed: WHY").
func survivorReasons() (map[string]string, error) {
	entries, err := survivorFiles.ReadDir("survivors")
	if err != nil {
		return nil, err
	}
	const separator = " | " // of the mutant and the reason
	reasons := map[string]string{}
	for _, e := range entries {
		name := "survivors/" + e.Name()
		text, err := survivorFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		folder := ""
		for i, line := range strings.Split(string(text), "\n") {
			line = strings.TrimSpace(line)
			switch k := strings.LastIndex(line, separator); {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "package "):
				folder = strings.TrimPrefix(line, "package ")
			case k < 0 || !isReason(line[k+len(separator):]):
				return nil, fmt.Errorf("%s:%d: want \"FUNCTION: CHANGE | REASON\" with the reason \"equivalent: WHY\", \"statistics\" or \"unnoticed: WHY\"", name, i+1)
			default:
				reasons[survivorKey(folder, line[:k])] = line[k+len(separator):]
			}
		}
	}
	return reasons, nil
}

func survivorKey(folder, does string) string { return folder + " " + does }

func isReason(text string) bool {
	return isEquivalent(text) || strings.HasPrefix(text, "unnoticed: ")
}

// isEquivalent reports whether a reason says that neither a peer nor an application can notice
// the mutant.
func isEquivalent(reason string) bool {
	return strings.HasPrefix(reason, "equivalent: ") || reason == "statistics"
}
