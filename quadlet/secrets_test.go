package quadlet

import (
	"reflect"
	"testing"
)

func TestSecretsAreReadFromTheCommandLine(t *testing.T) {
	g := Generated{ExecStart: [][]string{{"/usr/bin/podman", "run", "--env", "DB_PW=a=b", "-e", "EMPTY=", "--env=HOME",
		"--env-file", "/etc/web.env", "--secret", "key,type=env,target=KEY", "--secret=plain", "127.0.0.1:5000/app:v1", "--env", "NOT=one"}}}
	want := Secrets{Environment: map[string]string{"DB_PW": "a=b", "EMPTY": ""}, Files: []string{"/etc/web.env"}, Names: []string{"key", "plain"}}
	if have := SecretsOf(g); !reflect.DeepEqual(want, have) {
		t.Errorf("want %+v, have %+v", want, have)
	}
}
