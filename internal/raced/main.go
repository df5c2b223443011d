// Command raced says what the race step of CI tests: every package in which goroutines
// meet, which is one whose own code or tests have a go statement, a channel, a lock, an
// atomic variable or parallel tests. Packages without any of these (codecs, engines) cannot
// race by themselves, and are raced as parts of the others. Of some packages the step takes
// a part of the tests; parts.go says which, and why.
//
//	raced          print the packages that are tested as a whole
//	raced -parts   print those of which some tests are run
//	raced -run     print the pattern for these tests
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

const module = "github.com/fabrictest/fabrictest"

func main() {
	inParts := flag.Bool("parts", false, "print the packages of which some tests are run")
	pattern := flag.Bool("run", false, "print the pattern for these tests")
	flag.Parse()
	if *pattern {
		fmt.Println(runPattern())
		return
	}
	all, err := packages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "raced:", err)
		os.Exit(1)
	}
	for _, p := range all {
		if _, isPart := partOf(p.name()); p.raced() && isPart == *inParts {
			fmt.Println(p.ImportPath)
		}
	}
}

func (p *pack) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }
