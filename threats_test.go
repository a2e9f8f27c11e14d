package toad_test

import (
	"regexp"
	"strings"
	"testing"
)

// Every row and every point of the threat model names a test that shows it, and no test that is not there.
func TestTheThreatModelNamesItsTests(t *testing.T) {
	tests := testSources(t)
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	claims := 0
	for _, block := range strings.Split(source(t, "docs/threat-model.md"), "\n\n") {
		for _, claim := range claimsOf(block) {
			claims++
			shown := named.FindAllStringSubmatch(claim, -1)
			if len(shown) == 0 {
				t.Errorf("nothing shows: %s", claim)
			}
			for _, m := range shown {
				if !strings.Contains(tests, "func "+m[1]+"(") {
					t.Errorf("there is no %s", m[1])
				}
			}
		}
	}
	if claims < 40 {
		t.Errorf("only %d claims were looked at", claims)
	}
}

// claimsOf are the rows of a table without its head, or the points of a list.
func claimsOf(block string) (claims []string) {
	lines := strings.Split(strings.TrimSpace(block), "\n")
	if strings.HasPrefix(lines[0], "|") {
		return lines[2:]
	}
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "- "):
			claims = append(claims, line)
		case strings.HasPrefix(line, "  ") && len(claims) > 0:
			claims[len(claims)-1] += line
		}
	}
	return claims
}
