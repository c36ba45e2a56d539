//! Stop words of languages other than English: articles, pronouns, prepositions, and the
//! forms of "be" and "have".

use super::TextLanguage;

pub(super) const LANGUAGE_STOP_WORDS: [(TextLanguage, &str); 15] = [
    (
        TextLanguage::Danish,
        "og i jeg det at en den til er som på de med han af for ikke der var mig sig men et har om \
         vi min havde ham hun nu over da fra du ud sin dem os op man hans hvor eller hvad skal selv \
         her alle vil blev kunne ind når være dog noget ville jo deres efter ned skulle denne end \
         dette mit også under have dig anden hende mine alt meget sit sine vor mod disse hvis din \
         nogle hos blive mange ad bliver hendes været thi jer sådan hvordan kan",
    ),
    (
        TextLanguage::Dutch,
        "de en van ik te dat die in een hij het niet zijn is was op aan met als voor had er maar om \
         hem dan zou of wat mijn men dit zo door over ze zich bij ook tot je mij uit der daar haar \
         naar heb hoe heeft hebben deze u want nog zal me zij nu ge geen omdat iets worden toch al \
         waren veel meer doen toen moet ben zonder kan hun dus alles onder ja eens hier wie werd \
         altijd doch wordt wezen kunnen ons zelf tegen na reeds wil kon niets uw iemand geweest \
         andere waarom wanneer",
    ),
    (
        TextLanguage::Finnish,
        "olla olen olet on olemme olette ovat ole oli olisi en et ei emme ette eivät minä sinä hän me \
         te he tämä tämän tätä se sen sitä siinä nämä ne niitä joka jonka jota joita mikä mitä missä \
         kuka että ja jos koska kuin mutta niin sekä sillä tai vaan vai vaikka kanssa mukaan noin yli \
         kun nyt itse kuinka miten myös vain jo ennen jälkeen voi voit joten",
    ),
    (
        TextLanguage::French,
        "au aux avec ce ces dans de des du elle en et eux il ils je la le les leur leurs lui ma mais \
         me même mes moi mon ne nos notre nous on ou où par pas pour qu que qui sa se ses son sur ta \
         te tes toi ton tu un une vos votre vous c d j l à m n s t y est été être suis es sommes êtes \
         sont étais était étaient sera serait ai as avons avez ont avait avoir fait faire cette cet \
         ceux celle comment quand quel quelle quels quelles pourquoi plus sans sous chez donc si très \
         aussi peut peuvent doit doivent tout tous toute toutes",
    ),
    (
        TextLanguage::German,
        "aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei bin \
         bis bist da damit dann das dass dein deine dem den der des dich die dies diese dieser dieses \
         dir doch dort du durch ein eine einem einen einer eines er es etwas euch euer für gegen hab \
         habe haben hat hatte hier hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins \
         ist jede jedem jeden jeder jedes jetzt kann kein keine keinem keinen keiner können man manche \
         mein meine meinem meinen meiner mich mir mit muss müssen nach nicht nichts noch nun nur ob \
         oder ohne sehr sein seine seinem seinen seiner seit sich sie sind so soll sollen sollte \
         sondern über um und uns unser unsere unter viel vom von vor während war waren was weil welche \
         welcher wenn wer werde werden wie wieder will wir wird wo wurde zu zum zur zwischen wann warum",
    ),
    (
        TextLanguage::Hungarian,
        "a az és hogy nem is egy ez azt meg csak de ha van volt mint ki mi el már még vagy ezt fel \
         sem majd kell lehet minden olyan itt ott akkor mert most nagyon után így úgy mit hogyan \
         amely amelyek azok ezek egyik közül alatt által ami aki amit aztán be lesz lett nincs össze \
         több jól le én te ő mi ti ők saját szerint között miért mikor",
    ),
    (
        TextLanguage::Italian,
        "ad al allo ai agli alla alle con col da dal dallo dai dagli dalla dalle di del dello dei \
         degli della delle in nel nello nei negli nella nelle su sul sullo sui sugli sulla sulle per \
         tra fra contro io tu lui lei noi voi loro mio mia mie suo sua suoi sue nostro nostra vostro \
         mi ti ci vi lo la li le gli ne il un uno una ma ed se perché anche come dov dove che chi cui \
         non più quale quanto quanti quella quelli quello questo questa questi queste si tutto tutti a \
         c e i l o ho hai ha abbiamo avete hanno sono sei è siamo siete era erano essere stato stata \
         fa fare può possono quando",
    ),
    (
        TextLanguage::Norwegian,
        "og i jeg det at en et den til er som på de med han av ikke der så var meg seg men ett har om \
         vi min mitt ha hadde hun nå over da ved fra du ut sin dem oss opp man kan hans hvor eller hva \
         skal selv her alle vil bli ble blitt kunne inn når være kom noen noe ville dere deres kun ja \
         etter ned skulle denne for deg si sine sitt mot å meget hvorfor dette disse uten hvordan ingen \
         din ditt blir samme hvilken hvilke sånn inni mellom vår hver hvem vors hvis både bare enn fordi \
         før mange også slik vært være begge siden dykk",
    ),
    (
        TextLanguage::Polish,
        "i w na z do się nie to że jest o jak a po co ale od za przez dla czy są tak jego być już lub \
         oraz który która które którzy których tym tego tej ten ta te tych aby by był była było były ma \
         mają może można jeśli jeżeli przy pod nad tylko także też jako ich jej mnie mi my wy oni one \
         gdy gdzie kiedy dlaczego między we ze ponieważ więc nich nim bardzo tu tam ku bez albo",
    ),
    (
        TextLanguage::Portuguese,
        "de a o que e do da em um para com não uma os no se na por mais as dos como mas ao ele das à \
         seu sua ou quando muito nos já eu também só pelo pela até isso ela entre depois sem mesmo aos \
         seus quem nas me esse eles você essa num nem suas meu às minha numa pelos elas qual nós lhe \
         deles essas esses pelas este dele tu te vocês vos lhes meus minhas teu tua nosso nossa esta \
         estes estas aquele aquela isto aquilo estou está estamos estão estar ser é são era foi foram \
         tem têm ter temos havia há deve pode podem fazer onde porque",
    ),
    (
        TextLanguage::Romanian,
        "și a în de la cu pe nu că este sunt un o din mai pentru ce se care al ale ai au fi fost sau \
         dar prin este era după până fără când cum unde acest această aceste acesta aceasta acestea \
         acel cel cea cei cele lui ei lor își îi le ne vă mă te el ea noi voi eu tu am are avem aveți \
         dacă doar foarte între sub peste asupra va vor poate trebuie unei unui unor nici iar ca să \
         sa tot toate toți",
    ),
    (
        TextLanguage::Russian,
        "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее мне \
         было вот от меня еще нет о из ему теперь когда даже ну ли если уже или ни быть был него до вас \
         нибудь опять уж вам ведь там потом себя ничего ей может они тут где есть надо ней для мы тебя \
         их чем была сам чтоб без будто чего раз тоже себе под будет ж тогда кто этот того потому этого \
         какой ним здесь этом один мой тем чтобы нее были куда зачем всех можно при об это эта эти \
         через также нужно который которая которые почему",
    ),
    (
        TextLanguage::Spanish,
        "de la que el en y a los del se las por un para con no una su al lo como más pero sus le ya o \
         este sí porque esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos \
         durante todos uno les ni contra otros ese eso ante ellos e esto mí antes algunos qué unos yo \
         otro otras otra él tanto esa estos mucho quienes nada muchos cual poco ella estar estas algo \
         nosotros mi mis tú te ti tu tus es soy eres somos son era fue ser está están he has ha hemos \
         han había tiene tienen tener puede pueden debe hacer cómo cuándo dónde",
    ),
    (
        TextLanguage::Swedish,
        "och det att i en jag hon som han på den med var sig för så till är men ett om hade de av icke \
         mig du henne då sin nu har inte hans honom skulle hennes där min man ej vid kunde något från ut \
         när efter upp vi dem vara vad över än dig kan sina här ha mot alla under någon eller allt \
         mycket sedan ju denna själv detta åt utan varit hur ingen mitt ni bli blev oss din dessa några \
         deras blir mina samma vilken er sådan vår blivit dess inom mellan sådant varför varje vilka \
         ditt vem vilket sitt sådana vart dina vars vårt våra ert era vilkas ska",
    ),
    (
        TextLanguage::Turkish,
        "acaba ama ancak aslında az bana bazı belki ben beni benim bir biri birkaç birşey biz bize bizi \
         bu çok çünkü da daha de defa diye eğer en gibi hem hep hepsi her hiç için ile ise kez ki kim mı \
         mi mu mü nasıl ne neden nerde nerede nereye niçin niye o olan olarak oldu olduğu on ona ondan \
         onlar onu onun sanki sen senin siz size sizi sizin şey şu tüm var ve veya ya yani yok nedir \
         kadar sonra önce olur edilir değil",
    ),
];
